"""Protobuf; not in this version."""

from geminga.schema import ProtobufNativeSchema, Schema

__all__ = [
    "ProtobufNativeSchema",
    "Schema",
]
