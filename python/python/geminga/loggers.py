"""The loggers that ``Client(logger=...)`` takes besides those of ``logging``: each is its own, apart from the application's."""

from __future__ import annotations

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


class _Stderr(logging.Handler):
    """Writes to what is stderr at the time, which notebooks and tests exchange."""

    def emit(self, record: logging.LogRecord) -> None:
        if sys.stderr is not None:
            sys.stderr.write(self.format(record) + "\n")


def _logger(handler: logging.Handler, level: LoggerLevel) -> logging.Logger:
    handler.setFormatter(logging.Formatter(_FORMAT))
    # Not registered: no configuration of the application's reaches it.
    logger = logging.Logger("geminga", _LEVELS[level])
    logger.addHandler(handler)
    return logger


class ConsoleLogger:
    """Writes the log records of a client to stderr; nothing of this client goes to stdout.

    ``log_level``: the least level that is written.

    >>> ConsoleLogger(LoggerLevel.Warn)
    ConsoleLogger(LoggerLevel.Warn)
    """

    def __init__(self, log_level: LoggerLevel = LoggerLevel.Info) -> None:
        self._level = log_level
        self._logger = _logger(_Stderr(), log_level)

    def __repr__(self) -> str:
        return f"ConsoleLogger({self._level})"


class FileLogger:
    """Appends the log records of a client to a file, made when it is not there.

    ``log_level``: the least level that is written. ``log_file``: the path. Raises OSError for a file that can't be written.

    >>> client = geminga.Client("pulsar://localhost:6650", logger=FileLogger(LoggerLevel.Debug, "pulsar.log"))  # doctest: +SKIP
    """

    def __init__(self, log_level: LoggerLevel, log_file: str) -> None:
        self._level = log_level
        self._file = log_file
        self._logger = _logger(logging.FileHandler(log_file, encoding="utf-8"), log_level)

    def __repr__(self) -> str:
        return f"FileLogger({self._level}, {self._file!r})"
