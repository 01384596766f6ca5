"""Schemas: how values become payloads.

``BytesSchema`` and ``StringSchema`` work. A schema of your own needs ``encode(value) -> bytes`` and ``decode(bytes)``; the broker
is not told of it.

>>> StringSchema().encode("grüße").decode()
'grüße'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Union

from geminga.not_yet import NotYet

if TYPE_CHECKING:
    from geminga import Message

__all__ = [
    "Array",
    "AvroSchema",
    "Boolean",
    "Bytes",
    "BytesSchema",
    "CustomEnum",
    "Double",
    "Field",
    "Float",
    "Integer",
    "JsonSchema",
    "Long",
    "Map",
    "Null",
    "ProtobufNativeSchema",
    "Record",
    "Schema",
    "String",
    "StringSchema",
]

_RECORDS = "typed records are"


class Schema:
    """The base of schemas."""

    def encode(self, obj: Any) -> bytes:
        """The payload for a value. Raises TypeError for a value of another type."""
        raise NotImplementedError("a schema needs encode()")

    def decode(self, data: bytes) -> Any:
        """The value of a payload."""
        raise NotImplementedError("a schema needs decode()")

    def decode_message(self, msg: Message) -> Any:
        """The value of a message."""
        return self.decode(msg.data())

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    __str__ = __repr__

    @staticmethod
    def _check(expected: type, obj: object) -> None:
        if not isinstance(obj, expected):
            raise TypeError(f"Invalid record obj of type {type(obj)} - expected type is {expected}")


class BytesSchema(Schema):
    """Payloads as they are."""

    def encode(self, obj: bytes) -> bytes:
        """The bytes themselves. Raises TypeError for anything but bytes."""
        self._check(bytes, obj)
        return obj

    def decode(self, data: bytes) -> bytes:
        """The bytes themselves."""
        return data


class StringSchema(Schema):
    """Text in UTF-8."""

    def encode(self, obj: str) -> bytes:
        """The text's bytes. Raises TypeError for anything but str."""
        self._check(str, obj)
        return obj.encode()

    def decode(self, data: bytes) -> str:
        """The text. Raises UnicodeDecodeError for bytes that are none."""
        return data.decode()


class JsonSchema(Schema, NotYet, what=_RECORDS):
    """Records as JSON; not in this version."""


class AvroSchema(Schema, NotYet, what=_RECORDS):
    """Records in Avro; not in this version."""


class ProtobufNativeSchema(Schema, NotYet, what=_RECORDS):
    """Protobuf messages; not in this version."""


class Record(NotYet, what=_RECORDS):
    """The base of typed records; not in this version."""


class Field(NotYet, what=_RECORDS):
    """A field of a typed record; not in this version."""


class Array(NotYet, what=_RECORDS):
    """A field of a typed record; not in this version."""


class Boolean(NotYet, what=_RECORDS):
    """A field of a typed record; not in this version."""


class Bytes(NotYet, what=_RECORDS):
    """A field of a typed record; not in this version."""


class CustomEnum(NotYet, what=_RECORDS):
    """A field of a typed record; not in this version."""


class Double(NotYet, what=_RECORDS):
    """A field of a typed record; not in this version."""


class Float(NotYet, what=_RECORDS):
    """A field of a typed record; not in this version."""


class Integer(NotYet, what=_RECORDS):
    """A field of a typed record; not in this version."""


class Long(NotYet, what=_RECORDS):
    """A field of a typed record; not in this version."""


class Map(NotYet, what=_RECORDS):
    """A field of a typed record; not in this version."""


class Null(NotYet, what=_RECORDS):
    """A field of a typed record; not in this version."""


class String(NotYet, what=_RECORDS):
    """A field of a typed record; not in this version."""


def __getattr__(name: str) -> NoReturn:
    if name in ("definition", "schema", "schema_avro", "schema_protobuf"):
        raise NotImplementedError(f"schema.{name}: typed records are not supported by this version of geminga")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Codec(Protocol):
    """What a schema of one's own needs at least."""

    def encode(self, obj: Any) -> bytes:
        """The payload for a value."""

    def decode(self, data: bytes) -> Any:
        """The value of a payload."""


#: What ``schema=`` takes: a schema, its class, or None for plain bytes.
AnySchema = Union[Codec, type[Schema], None]


def native(schema: AnySchema) -> Codec | None:
    """What the extension module needs: None for plain bytes, else an object with encode and decode.

    Takes a schema or its class, as ``create_producer(schema=BytesSchema)`` gives it.
    """
    if isinstance(schema, type):
        schema = schema()
    if schema is None or type(schema) is BytesSchema:
        return None
    if not hasattr(schema, "encode") or not hasattr(schema, "decode"):
        raise ValueError(f"Argument schema is expected to be a Schema and not '{type(schema).__name__}'")
    return schema
