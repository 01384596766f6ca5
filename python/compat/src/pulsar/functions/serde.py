"""Pulsar Functions; not in this version."""

from geminga import IdentitySerDe, PickleSerDe, SerDe

__all__ = [
    "IdentitySerDe",
    "PickleSerDe",
    "SerDe",
]
