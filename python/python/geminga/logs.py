"""Log records of the core in ``logging``, under the name ``geminga``."""

import logging

from geminga import _geminga

logger = logging.getLogger("geminga")
# Without a handler of the application's, nothing is printed.
logger.addHandler(logging.NullHandler())


def start(given):
    """Gives the records to what ``Client(logger=...)`` was given as well. Raises ValueError for what is no logger."""
    if given is None:
        _geminga._start_logs(logger, max(logger.getEffectiveLevel(), 1))
        return
    handler = getattr(given, "_handler", None)
    if isinstance(given, logging.Logger):
        handler = _Forward(given)
    if handler is None:
        raise ValueError(f"Argument logger is expected to be a Logger and not '{type(given).__name__}'")
    if handler not in logger.handlers:
        logger.addHandler(handler)
    level = given.getEffectiveLevel() if isinstance(given, logging.Logger) else handler.level
    if level < logger.getEffectiveLevel():
        logger.setLevel(level)
    _geminga._start_logs(logger, max(logger.getEffectiveLevel(), 1))


class _Forward(logging.Handler):
    """Hands records on to a logger of the application's."""

    def __init__(self, target):
        super().__init__()
        self._target = target

    def emit(self, record):
        if self._target is not logger and self._target.isEnabledFor(record.levelno):
            self._target.handle(record)

    def __eq__(self, other):
        return isinstance(other, _Forward) and other._target is self._target

    __hash__ = logging.Handler.__hash__
