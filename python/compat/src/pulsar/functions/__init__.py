"""Pulsar Functions; not in this version."""

from pulsar.functions import context, function, serde

__all__ = ["context", "function", "serde"]
