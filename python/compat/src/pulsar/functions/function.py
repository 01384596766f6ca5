"""Pulsar Functions; not in this version."""

from geminga import Function

__all__ = [
    "Function",
]
