"""Log records of the core in ``logging``, under the name ``geminga`` or to the logger that a client was given."""

from __future__ import annotations

import logging
from typing import Union

from geminga import _geminga
from geminga.loggers import ConsoleLogger, FileLogger

logger = logging.getLogger("geminga")
# Without a handler of the application's, nothing is printed.
logger.addHandler(logging.NullHandler())

#: What ``Client(logger=...)`` takes.
AnyLogger = Union[logging.Logger, ConsoleLogger, FileLogger]


def start(given: AnyLogger | None) -> tuple[logging.Logger, int] | None:
    """Has records forwarded; returns the client's own logger with its level. Raises ValueError for what is no logger."""
    _geminga._start_logs(logger, max(logger.getEffectiveLevel(), 1))
    if given is None:
        return None
    target = given if isinstance(given, logging.Logger) else getattr(given, "_logger", None)
    if target is None:
        raise ValueError(f"Argument logger is expected to be a Logger and not '{type(given).__name__}'")
    return target, max(target.getEffectiveLevel(), 1)
