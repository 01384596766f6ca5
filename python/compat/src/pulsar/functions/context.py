"""Pulsar Functions; not in this version."""

from geminga import Context

__all__ = [
    "Context",
]
