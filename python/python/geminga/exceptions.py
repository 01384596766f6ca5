"""The exceptions of geminga: one class for each kind of the core's error table, all of them a ``PulsarException``.

>>> from geminga import exceptions
>>> issubclass(exceptions.Timeout, exceptions.PulsarException)
True
>>> exceptions.Timeout.retryable, exceptions.Timeout.result
(True, <Result.Timeout: 3>)
"""

from geminga import _geminga
from geminga.enums import Result


class PulsarException(Exception):
    """What went wrong, in one sentence with the topic: the base of every exception of this package but NotImplementedError."""

    #: The code of this kind.
    result = Result.UnknownError
    #: Whether the same call may succeed later.
    retryable = False

    def error(self):
        """The code of this exception, as callbacks get it."""
        return self.result


class ForkedProcess(PulsarException):
    """An object was used in a child process that was forked after the object was made."""

    result = Result.AlreadyClosed


#: Kinds that programs catch by a class of Python's own as well.
_ALSO = {"InvalidUrl": ValueError}


def _make_classes():
    classes = {0: ForkedProcess}
    for name, code, retryable, sentence in _geminga._error_table():
        bases = (PulsarException, _ALSO[name]) if name in _ALSO else (PulsarException,)
        members = {
            "__doc__": sentence[0].upper() + sentence[1:] + ".",
            "__module__": __name__,
            "result": Result(code),
            "retryable": retryable,
        }
        classes[code] = type(name, bases, members)
    _geminga._set_error_classes(classes)
    return classes


_classes = _make_classes()
globals().update((c.__name__, c) for c in _classes.values())

__all__ = ["PulsarException", *(c.__name__ for c in _classes.values())]
