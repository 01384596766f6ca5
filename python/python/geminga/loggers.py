"""The loggers that ``Client(logger=...)`` takes besides those of ``logging``.

They are handlers: records of the client are given to them at their level and above.
"""

import logging
import sys

from geminga.enums import LoggerLevel

_LEVELS = {
    LoggerLevel.Debug: logging.DEBUG,
    LoggerLevel.Info: logging.INFO,
    LoggerLevel.Warn: logging.WARNING,
    LoggerLevel.Error: logging.ERROR,
}

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class ConsoleLogger:
    """Writes log records to stderr; nothing of this client goes to stdout."""

    def __init__(self, log_level=LoggerLevel.Info):
        self._handler = logging.StreamHandler(sys.stderr)
        self._handler.setLevel(_LEVELS[log_level])
        self._handler.setFormatter(logging.Formatter(_FORMAT))


class FileLogger:
    """Appends log records to a file."""

    def __init__(self, log_level, log_file):
        self._handler = logging.FileHandler(log_file)
        self._handler.setLevel(_LEVELS[log_level])
        self._handler.setFormatter(logging.Formatter(_FORMAT))
