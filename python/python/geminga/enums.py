"""The enums of the existing client, with its values.

A member is its number too: ``Result.Ok == 0``.

>>> from geminga import ConsumerType
>>> ConsumerType.KeyShared
<ConsumerType.KeyShared: 3>
>>> str(ConsumerType.KeyShared), int(ConsumerType.KeyShared)
('ConsumerType.KeyShared', 3)
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from geminga import _geminga


class _Enum(enum.IntEnum):
    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class ConsumerType(_Enum):
    """How a subscription shares messages among its consumers."""

    Exclusive = 0
    Shared = 1
    Failover = 2
    KeyShared = 3


class CompressionType(_Enum):
    """The codec of payloads."""

    NONE = 0
    LZ4 = 1
    ZLib = 2
    ZSTD = 3
    SNAPPY = 4


class InitialPosition(_Enum):
    """Where a subscription that does not exist yet starts."""

    Latest = 0
    Earliest = 1


class PartitionsRoutingMode(_Enum):
    """How a message without key finds its partition."""

    UseSinglePartition = 0
    RoundRobinDistribution = 1
    CustomPartition = 2


class BatchingType(_Enum):
    """Which messages share a batch."""

    Default = 0
    KeyBased = 1


class ProducerAccessMode(_Enum):
    """Whether others may produce beside a producer."""

    Shared = 0
    Exclusive = 1
    WaitForExclusive = 2
    ExclusiveWithFencing = 3


class KeySharedMode(_Enum):
    """Who divides the hash range of a Key_Shared subscription: the broker, or its consumers."""

    AutoSplit = 0
    Sticky = 1


class RegexSubscriptionMode(_Enum):
    """Which topics a pattern is matched against."""

    PersistentOnly = 0
    NonPersistentOnly = 1
    AllTopics = 2


class ConsumerCryptoFailureAction(_Enum):
    """What happens to a message that cannot be decrypted."""

    FAIL = 0
    DISCARD = 1
    CONSUME = 2


class LoggerLevel(_Enum):
    """The levels of ``ConsoleLogger`` and ``FileLogger``."""

    Debug = 0
    Info = 1
    Warn = 2
    Error = 3


if TYPE_CHECKING:

    class Result(_Enum):
        """How an asynchronous call went."""

        Ok = 0
        UnknownError = 1
        InvalidConfiguration = 2
        Timeout = 3
        LookupError = 4
        ConnectError = 5
        ReadError = 6
        AuthenticationError = 7
        AuthorizationError = 8
        ErrorGettingAuthenticationData = 9
        BrokerMetadataError = 10
        BrokerPersistenceError = 11
        ChecksumError = 12
        ConsumerBusy = 13
        NotConnected = 14
        AlreadyClosed = 15
        InvalidMessage = 16
        ConsumerNotInitialized = 17
        ProducerNotInitialized = 18
        ProducerBusy = 19
        TooManyLookupRequestException = 20
        InvalidTopicName = 21
        InvalidUrl = 22
        ServiceUnitNotReady = 23
        OperationNotSupported = 24
        ProducerBlockedQuotaExceededError = 25
        ProducerBlockedQuotaExceededException = 26
        ProducerQueueIsFull = 27
        MessageTooBig = 28
        TopicNotFound = 29
        SubscriptionNotFound = 30
        ConsumerNotFound = 31
        UnsupportedVersionError = 32
        TopicTerminated = 33
        CryptoError = 34
        IncompatibleSchema = 35
        ConsumerAssignError = 36
        CumulativeAcknowledgementNotAllowedError = 37
        TransactionCoordinatorNotFoundError = 38
        InvalidTxnStatusError = 39
        NotAllowedError = 40
        TransactionConflict = 41
        TransactionNotFound = 42
        ProducerFenced = 43
        MemoryBufferIsFull = 44
        Interrupted = 45
        Disconnected = 46

else:
    Result = _Enum("Result", {"Ok": 0, **{name: code for name, code, _, _ in _geminga._error_table()}}, module=__name__)
    Result.__doc__ = "How an asynchronous call went: Ok, or the kind of its error. The core's error table gives names and codes."

_geminga._set_results(list(Result))
