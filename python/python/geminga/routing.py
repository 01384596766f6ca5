"""What a ``message_router`` is shown of a message that is about to be sent."""


class OutgoingMessage:
    """A message on its way: its key (empty without one), properties and payload."""

    __slots__ = ("_data", "_key", "_properties")

    def __init__(self, key, properties, data):
        self._key = key
        self._properties = properties
        self._data = data

    def partition_key(self):
        """The key, empty without one."""
        return self._key

    def properties(self):
        """The pairs that go with it."""
        return self._properties

    def data(self):
        """The payload."""
        return self._data

    def __repr__(self):
        return f"<OutgoingMessage key={self._key!r}, {len(self._data)} bytes>"
