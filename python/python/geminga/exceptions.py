"""The exceptions of geminga: one class for each kind of the core's error table, all of them a ``PulsarException``.

>>> from geminga import exceptions
>>> issubclass(exceptions.Timeout, exceptions.PulsarException)
True
>>> exceptions.Timeout.retryable, exceptions.Timeout.result
(True, <Result.Timeout: 3>)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga import _geminga
from geminga.enums import Result


class PulsarException(Exception):
    """What went wrong, in one sentence with the topic: the base of every exception of this package but NotImplementedError."""

    #: The code of this kind.
    result: Result = Result.UnknownError
    #: Whether the same call may succeed later.
    retryable: bool = False

    def error(self) -> Result:
        """The code of this exception, as callbacks get it."""
        return self.result


class ForkedProcess(PulsarException):
    """An object was used in a child process that was forked after the object was made."""

    result = Result.AlreadyClosed


#: Kinds that programs catch by a class of Python's own as well.
_ALSO: dict[str, type[Exception]] = {"InvalidUrl": ValueError}


def _make_classes() -> dict[int, type[PulsarException]]:
    classes: dict[int, type[PulsarException]] = {0: ForkedProcess}
    for name, code, retryable, sentence in _geminga._error_table():
        bases: tuple[type, ...] = (PulsarException, _ALSO[name]) if name in _ALSO else (PulsarException,)
        members = {
            "__doc__": sentence[0].upper() + sentence[1:] + ".",
            "__module__": __name__,
            "result": Result(code),
            "retryable": retryable,
        }
        classes[code] = type(name, bases, members)
    _geminga._set_error_classes(classes)
    return classes


if TYPE_CHECKING:
    # What type checkers see of the classes made above.
    class AlreadyClosed(PulsarException): ...

    class AuthenticationError(PulsarException): ...

    class AuthorizationError(PulsarException): ...

    class BrokerMetadataError(PulsarException): ...

    class BrokerPersistenceError(PulsarException): ...

    class ChecksumError(PulsarException): ...

    class ConnectError(PulsarException): ...

    class ConsumerAssignError(PulsarException): ...

    class ConsumerBusy(PulsarException): ...

    class ConsumerNotFound(PulsarException): ...

    class ConsumerNotInitialized(PulsarException): ...

    class CryptoError(PulsarException): ...

    class CumulativeAcknowledgementNotAllowedError(PulsarException): ...

    class Disconnected(PulsarException): ...

    class ErrorGettingAuthenticationData(PulsarException): ...

    class IncompatibleSchema(PulsarException): ...

    class Interrupted(PulsarException): ...

    class InvalidConfiguration(PulsarException): ...

    class InvalidMessage(PulsarException): ...

    class InvalidTopicName(PulsarException): ...

    class InvalidTxnStatusError(PulsarException): ...

    class InvalidUrl(PulsarException, ValueError): ...

    class LookupError(PulsarException): ...

    class MemoryBufferIsFull(PulsarException): ...

    class MessageTooBig(PulsarException): ...

    class NotAllowedError(PulsarException): ...

    class NotConnected(PulsarException): ...

    class OperationNotSupported(PulsarException): ...

    class ProducerBlockedQuotaExceededError(PulsarException): ...

    class ProducerBlockedQuotaExceededException(PulsarException): ...

    class ProducerBusy(PulsarException): ...

    class ProducerFenced(PulsarException): ...

    class ProducerNotInitialized(PulsarException): ...

    class ProducerQueueIsFull(PulsarException): ...

    class ReadError(PulsarException): ...

    class ServiceUnitNotReady(PulsarException): ...

    class SubscriptionNotFound(PulsarException): ...

    class Timeout(PulsarException): ...

    class TooManyLookupRequestException(PulsarException): ...

    class TopicNotFound(PulsarException): ...

    class TopicTerminated(PulsarException): ...

    class TransactionConflict(PulsarException): ...

    class TransactionCoordinatorNotFoundError(PulsarException): ...

    class TransactionNotFound(PulsarException): ...

    class UnknownError(PulsarException): ...

    class UnsupportedVersionError(PulsarException): ...


_classes = _make_classes()
globals().update((c.__name__, c) for c in _classes.values())

__all__ = [
    "AlreadyClosed",
    "AuthenticationError",
    "AuthorizationError",
    "BrokerMetadataError",
    "BrokerPersistenceError",
    "ChecksumError",
    "ConnectError",
    "ConsumerAssignError",
    "ConsumerBusy",
    "ConsumerNotFound",
    "ConsumerNotInitialized",
    "CryptoError",
    "CumulativeAcknowledgementNotAllowedError",
    "Disconnected",
    "ErrorGettingAuthenticationData",
    "ForkedProcess",
    "IncompatibleSchema",
    "Interrupted",
    "InvalidConfiguration",
    "InvalidMessage",
    "InvalidTopicName",
    "InvalidTxnStatusError",
    "InvalidUrl",
    "LookupError",
    "MemoryBufferIsFull",
    "MessageTooBig",
    "NotAllowedError",
    "NotConnected",
    "OperationNotSupported",
    "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException",
    "ProducerBusy",
    "ProducerFenced",
    "ProducerNotInitialized",
    "ProducerQueueIsFull",
    "PulsarException",
    "ReadError",
    "ServiceUnitNotReady",
    "SubscriptionNotFound",
    "Timeout",
    "TooManyLookupRequestException",
    "TopicNotFound",
    "TopicTerminated",
    "TransactionConflict",
    "TransactionCoordinatorNotFoundError",
    "TransactionNotFound",
    "UnknownError",
    "UnsupportedVersionError",
]
