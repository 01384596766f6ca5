"""Names of the existing client that this version cannot serve: each says so when it is used, and can be imported."""

from typing import Any, NoReturn


class _Refusing(type):
    def __getattr__(cls, name: str) -> NoReturn:
        # What starts with an underscore is asked for by tools, which take AttributeError for an answer.
        if name.startswith("_"):
            raise AttributeError(name)
        raise cls._refusal()

    def _refusal(cls) -> NotImplementedError:
        what: str = vars(cls)["_what"]
        return NotImplementedError(f"{cls.__name__}: {what} not supported by this version of geminga")


class NotYet(metaclass=_Refusing):
    """The base of what is not there yet: making an instance, subclassing and asking for a member raise NotImplementedError."""

    _what = "this is"

    def __init_subclass__(cls, what: str | None = None, **kwargs: Any) -> None:
        if what is None:
            base = next(base for base in cls.__mro__[1:] if isinstance(base, _Refusing))
            raise base._refusal()
        super().__init_subclass__(**kwargs)
        cls._what = what

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise type(self)._refusal()


_SERVICE = "changing the service URL of a running client is"
_FUNCTIONS = "Pulsar Functions (they run inside a broker, with a client of their own) are"
_CRYPTO = "end-to-end encryption is"


class AutoClusterFailover(NotYet, what="failover between clusters is"):
    """Failover between clusters; not in this version."""


class BatchReceivePolicy(NotYet, what="the C++ class behind ConsumerBatchReceivePolicy is"):
    """Use ``ConsumerBatchReceivePolicy``."""


class Context(NotYet, what=_FUNCTIONS):
    """What a Pulsar Function is given; not in this version."""


class CryptoKeyReader(NotYet, what=_CRYPTO):
    """Keys for end-to-end encryption; not in this version."""


class DeadLetterPolicyBuilder(NotYet, what="the C++ class behind ConsumerDeadLetterPolicy is"):
    """Use ``ConsumerDeadLetterPolicy``."""


class EncryptionContext(NotYet, what=_CRYPTO):
    """How a message was encrypted; not in this version."""


class EncryptionKey(NotYet, what=_CRYPTO):
    """A key that a message was encrypted with; not in this version."""


class Function(NotYet, what=_FUNCTIONS):
    """The base of Pulsar Functions; not in this version."""


class IdentitySerDe(NotYet, what=_FUNCTIONS):
    """A serializer of Pulsar Functions; not in this version."""


class KeySharedPolicy(NotYet, what="the C++ class behind ConsumerKeySharedPolicy is"):
    """Use ``ConsumerKeySharedPolicy``."""


class MessageBatch(NotYet, what="taking a raw batch apart is"):
    """A batch in its encoded form; not in this version."""


class PickleSerDe(NotYet, what=_FUNCTIONS):
    """A serializer of Pulsar Functions; not in this version."""


class SerDe(NotYet, what=_FUNCTIONS):
    """The base of serializers of Pulsar Functions; not in this version."""


class ServiceInfo(NotYet, what=_SERVICE):
    """An address with its credentials; not in this version."""


class ServiceInfoProvider(NotYet, what=_SERVICE):
    """Tells a client where to connect; not in this version."""


class TableView(NotYet, what="table views are"):
    """The latest value of each key of a topic; not in this version."""
