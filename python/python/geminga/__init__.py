"""An Apache Pulsar client: programs written for PyPI's ``pulsar-client`` run with ``import geminga as pulsar``.

>>> import geminga
>>> from geminga.testing import EmbeddedBroker
>>> with EmbeddedBroker() as broker, geminga.Client(broker.service_url) as client:
...     producer = client.create_producer("greetings")
...     consumer = client.subscribe("greetings", "readers")
...     sent = producer.send(b"hello")
...     message = consumer.receive(timeout_millis=5000)
...     consumer.acknowledge(message)
...     message.data()
b'hello'

Every name has the keywords, defaults and units of the existing client. What this version cannot do raises
NotImplementedError, naming it. Log records go to ``logging`` under ``geminga``, nothing to stdout.
"""

from __future__ import annotations

import atexit as _atexit
import os as _os
from typing import NoReturn as _NoReturn

from geminga import exceptions, schema
from geminga._geminga import (
    Consumer,
    Message,
    MessageId,
    Producer,
    Reader,
    _after_fork,
    _at_exit,
)
from geminga.authentication import (
    Authentication,
    AuthenticationAthenz,
    AuthenticationBasic,
    AuthenticationOauth2,
    AuthenticationTLS,
    AuthenticationToken,
)
from geminga.client import Client
from geminga.enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
    KeySharedMode,
    LoggerLevel,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
    Result,
)
from geminga.exceptions import *  # noqa: F403
from geminga.exceptions import PulsarException
from geminga.loggers import ConsoleLogger, FileLogger
from geminga.not_yet import (
    AutoClusterFailover,
    BatchReceivePolicy,
    Context,
    CryptoKeyReader,
    DeadLetterPolicyBuilder,
    EncryptionContext,
    EncryptionKey,
    Function,
    IdentitySerDe,
    KeySharedPolicy,
    MessageBatch,
    PickleSerDe,
    SerDe,
    ServiceInfo,
    ServiceInfoProvider,
    TableView,
)
from geminga.policies import ConsumerBatchReceivePolicy, ConsumerDeadLetterPolicy, ConsumerKeySharedPolicy
from geminga.routing import OutgoingMessage
from geminga.schema import BytesSchema, JsonSchema, Schema, StringSchema

__version__ = "0.1.0"

_os.register_at_fork(after_in_child=_after_fork)
_atexit.register(_at_exit)

__all__ = [
    "AlreadyClosed",
    "Authentication",
    "AuthenticationAthenz",
    "AuthenticationBasic",
    "AuthenticationError",
    "AuthenticationOauth2",
    "AuthenticationTLS",
    "AuthenticationToken",
    "AuthorizationError",
    "AutoClusterFailover",
    "BatchReceivePolicy",
    "BatchingType",
    "BrokerMetadataError",
    "BrokerPersistenceError",
    "BytesSchema",
    "ChecksumError",
    "Client",
    "CompressionType",
    "ConnectError",
    "ConsoleLogger",
    "Consumer",
    "ConsumerAssignError",
    "ConsumerBatchReceivePolicy",
    "ConsumerBusy",
    "ConsumerCryptoFailureAction",
    "ConsumerDeadLetterPolicy",
    "ConsumerKeySharedPolicy",
    "ConsumerNotFound",
    "ConsumerNotInitialized",
    "ConsumerType",
    "Context",
    "CryptoError",
    "CryptoKeyReader",
    "CumulativeAcknowledgementNotAllowedError",
    "DeadLetterPolicyBuilder",
    "Disconnected",
    "EncryptionContext",
    "EncryptionKey",
    "ErrorGettingAuthenticationData",
    "FileLogger",
    "ForkedProcess",
    "Function",
    "IdentitySerDe",
    "IncompatibleSchema",
    "InitialPosition",
    "Interrupted",
    "InvalidConfiguration",
    "InvalidMessage",
    "InvalidTopicName",
    "InvalidTxnStatusError",
    "InvalidUrl",
    "JsonSchema",
    "KeySharedMode",
    "KeySharedPolicy",
    "LoggerLevel",
    "LookupError",
    "MemoryBufferIsFull",
    "Message",
    "MessageBatch",
    "MessageId",
    "MessageTooBig",
    "NotAllowedError",
    "NotConnected",
    "OperationNotSupported",
    "OutgoingMessage",
    "PartitionsRoutingMode",
    "PickleSerDe",
    "Producer",
    "ProducerAccessMode",
    "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException",
    "ProducerBusy",
    "ProducerFenced",
    "ProducerNotInitialized",
    "ProducerQueueIsFull",
    "PulsarException",
    "ReadError",
    "Reader",
    "RegexSubscriptionMode",
    "Result",
    "Schema",
    "SerDe",
    "ServiceInfo",
    "ServiceInfoProvider",
    "ServiceUnitNotReady",
    "StringSchema",
    "SubscriptionNotFound",
    "TableView",
    "Timeout",
    "TooManyLookupRequestException",
    "TopicNotFound",
    "TopicTerminated",
    "TransactionConflict",
    "TransactionCoordinatorNotFoundError",
    "TransactionNotFound",
    "UnknownError",
    "UnsupportedVersionError",
    "exceptions",
    "schema",
]


def __getattr__(name: str) -> _NoReturn:
    if name in ("functions", "tableview"):
        raise NotImplementedError(f"{__name__}.{name} is not supported by this version of geminga")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
