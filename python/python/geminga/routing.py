"""What a ``message_router`` is shown of a message that is about to be sent."""


from __future__ import annotations


class OutgoingMessage:
    """A message on its way: its key (empty without one), properties and payload.

    >>> def router(message, partitions):
    ...     return len(message.partition_key()) % partitions
    >>> router(OutgoingMessage("alice", {}, b"3 apples"), 3)
    2
    """

    __slots__ = ("_data", "_key", "_properties")

    def __init__(self, key: str, properties: dict[str, str], data: bytes) -> None:
        self._key = key
        self._properties = properties
        self._data = data

    def partition_key(self) -> str:
        """The key, empty without one."""
        return self._key

    def properties(self) -> dict[str, str]:
        """The pairs that go with it."""
        return self._properties

    def data(self) -> bytes:
        """The payload."""
        return self._data

    def __repr__(self) -> str:
        return f"<OutgoingMessage key={self._key!r}, {len(self._data)} bytes>"
