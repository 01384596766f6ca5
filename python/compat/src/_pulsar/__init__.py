"""What old scripts import from the C++ extension of ``pulsar-client``: enums, ``Result``, exceptions and the classes of values.

>>> from _pulsar import ConsumerType, InitialPosition, Result
>>> Result.Ok
<Result.Ok: 0>

The classes that wrap the C++ library (``ClientConfiguration`` and so on) raise NotImplementedError when they are used.
"""

from _pulsar import _beside
from geminga import (
    AuthenticationAthenz,
    AuthenticationBasic,
    AuthenticationOauth2,
    AuthenticationTLS,
    AuthenticationToken,
    Authentication,
    BatchReceivePolicy,
    BatchingType,
    CompressionType,
    Consumer,
    ConsumerCryptoFailureAction,
    ConsumerType,
    CryptoKeyReader,
    DeadLetterPolicyBuilder,
    EncryptionContext,
    EncryptionKey,
    InitialPosition,
    KeySharedMode,
    KeySharedPolicy,
    LoggerLevel,
    Message,
    MessageBatch,
    MessageId,
    PartitionsRoutingMode,
    Producer,
    ProducerAccessMode,
    Reader,
    RegexSubscriptionMode,
    Result,
    ServiceInfo,
    TableView,
)
from geminga.exceptions import *  # noqa: F403
from geminga.not_yet import NotYet

_beside.check()

_CPP = "the C++ library's own class is"


class AbstractCryptoKeyReader(NotYet, what=_CPP):
    """Not in this version."""


class Client(NotYet, what="the C++ library's own client is"):
    """Use ``pulsar.Client``."""


class ClientConfiguration(NotYet, what=_CPP):
    """Use the arguments of ``pulsar.Client``."""


class ConsumerConfiguration(NotYet, what=_CPP):
    """Use the arguments of ``pulsar.Client.subscribe``."""


class DeadLetterPolicy(NotYet, what=_CPP):
    """Use ``pulsar.ConsumerDeadLetterPolicy``."""


class Error(NotYet, what=_CPP):
    """Use ``pulsar.PulsarException``."""


class MessageBuilder(NotYet, what=_CPP):
    """Use the arguments of ``Producer.send``."""


class ProducerConfiguration(NotYet, what=_CPP):
    """Use the arguments of ``pulsar.Client.create_producer``."""


class ReaderConfiguration(NotYet, what=_CPP):
    """Use the arguments of ``pulsar.Client.create_reader``."""


class SchemaInfo(NotYet, what=_CPP):
    """Not in this version."""


class SchemaType(NotYet, what="telling the broker of schemas is"):
    """Not in this version."""


class TableViewConfiguration(NotYet, what=_CPP):
    """Not in this version."""


class TopicRegex(NotYet, what=_CPP):
    """Not in this version."""
