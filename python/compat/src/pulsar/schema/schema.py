"""Schemas of bytes, text and, in a later version, JSON."""

from geminga.schema import BytesSchema, JsonSchema, Schema, StringSchema

__all__ = [
    "BytesSchema",
    "JsonSchema",
    "Schema",
    "StringSchema",
]
