"""Avro; not in this version."""

from geminga.schema import AvroSchema, Record, Schema

__all__ = [
    "AvroSchema",
    "Record",
    "Schema",
]
