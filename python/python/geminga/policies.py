"""Policies of consumers."""

from __future__ import annotations

from geminga.enums import KeySharedMode


class ConsumerBatchReceivePolicy:
    """When ``batch_receive`` returns: at the first limit that is reached.

    - ``max_num_message``: messages. ``max_num_bytes``: bytes of payload. ``timeout_ms``: milliseconds.
    - A limit of zero or less is none.

    >>> ConsumerBatchReceivePolicy(100, -1, 500)
    ConsumerBatchReceivePolicy(max_num_message=100, max_num_bytes=-1, timeout_ms=500)
    """

    def __init__(self, max_num_message: int, max_num_bytes: int, timeout_ms: int) -> None:
        for value in (max_num_message, max_num_bytes, timeout_ms):
            if not isinstance(value, int):
                raise TypeError(f"the limits of a batch are numbers, not '{type(value).__name__}'")
        self._limits = {
            "max_num_message": max_num_message,
            "max_num_bytes": max_num_bytes,
            "timeout_ms": timeout_ms,
        }

    def policy(self) -> dict[str, int]:
        """The limits, as a dict."""
        return dict(self._limits)

    def __repr__(self) -> str:
        limits = ", ".join(f"{name}={value}" for name, value in self._limits.items())
        return f"ConsumerBatchReceivePolicy({limits})"


class ConsumerDeadLetterPolicy:
    """Where a message goes that the application gives back again and again, on Shared and KeyShared subscriptions.

    - A message is delivered ``max_redeliver_count + 1`` times. Given back once more, by ``negative_acknowledge`` when its delay
      is over or by ``redeliver_unacknowledged_messages``, it is sent to the dead letter topic and acknowledged with the receipt.
    - The copy keeps payload, keys, event time and properties. Its properties ``REAL_TOPIC`` and ``ORIGIN_MESSAGE_ID`` say where
      it came from: the topic or partition, and the id as ledger:entry:partition, with :index in a batch.
    - What cannot be sent stays unacknowledged and is tried again; a record at WARNING of the log says so.
    - On Exclusive and Failover brokers don't count redeliveries: the policy has no effect there, and subscribing warns.

    Raises ValueError when ``max_redeliver_count`` is below 1.

    >>> ConsumerDeadLetterPolicy(3, initial_subscription_name="keep").max_redeliver_count
    3
    """

    def __init__(
        self,
        max_redeliver_count: int,
        dead_letter_topic: str | None = None,
        initial_subscription_name: str | None = None,
    ) -> None:
        if not isinstance(max_redeliver_count, int) or max_redeliver_count < 1:
            raise ValueError("max_redeliver_count must be greater than 0")
        if max_redeliver_count > 2**31 - 1:
            raise ValueError(f"max_redeliver_count must not be over {2**31 - 1}")
        for name, value in (
            ("dead_letter_topic", dead_letter_topic),
            ("initial_subscription_name", initial_subscription_name),
        ):
            if value is not None and not isinstance(value, str):
                raise TypeError(f"Argument {name} is expected to be a str and not '{type(value).__name__}'")
        self._max_redeliver_count = max_redeliver_count
        self._dead_letter_topic = dead_letter_topic
        self._initial_subscription_name = initial_subscription_name

    @property
    def max_redeliver_count(self) -> int:
        """Redeliveries before a message goes to the dead letter topic."""
        return self._max_redeliver_count

    @property
    def dead_letter_topic(self) -> str | None:
        """The topic's name; None for ``<topic>-<subscription>-DLQ``."""
        return self._dead_letter_topic

    @property
    def initial_subscription_name(self) -> str | None:
        """A subscription to create on the dead letter topic, so that it keeps its messages; None for none."""
        return self._initial_subscription_name

    def _native(self) -> tuple[int, str | None, str | None]:
        return self._max_redeliver_count, self._dead_letter_topic or None, self._initial_subscription_name or None

    def policy(self) -> ConsumerDeadLetterPolicy:
        """The policy itself."""
        return self

    def __repr__(self) -> str:
        return (
            f"ConsumerDeadLetterPolicy(max_redeliver_count={self._max_redeliver_count}, "
            f"dead_letter_topic={self._dead_letter_topic!r}, "
            f"initial_subscription_name={self._initial_subscription_name!r})"
        )


class ConsumerKeySharedPolicy:
    """How a Key_Shared subscription divides keys among its consumers.

    ``sticky_ranges``: pairs of hash slots, both ends included, from 0 to 65535, for ``KeySharedMode.Sticky``.

    >>> ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=[(0, 32767)]).sticky_ranges
    [(0, 32767)]
    """

    def __init__(
        self,
        key_shared_mode: KeySharedMode = KeySharedMode.AutoSplit,
        allow_out_of_order_delivery: bool = False,
        sticky_ranges: list[tuple[int, int]] | None = None,
    ) -> None:
        if not isinstance(key_shared_mode, KeySharedMode):
            raise ValueError("Argument key_shared_mode is expected to be a KeySharedMode")
        if not isinstance(allow_out_of_order_delivery, bool):
            raise ValueError("Argument allow_out_of_order_delivery is expected to be a bool")
        if key_shared_mode is KeySharedMode.Sticky and not sticky_ranges:
            raise ValueError("sticky_ranges must not be empty with KeySharedMode.Sticky")
        for low, high in sticky_ranges or []:
            if not 0 <= low <= high <= 65535:
                raise ValueError(f"a range must lie within 0 and 65535, not ({low}, {high})")
        self._key_shared_mode = key_shared_mode
        self._allow_out_of_order_delivery = allow_out_of_order_delivery
        self._sticky_ranges = sticky_ranges

    @property
    def key_shared_mode(self) -> KeySharedMode:
        """Who divides: the broker or the consumers."""
        return self._key_shared_mode

    @property
    def allow_out_of_order_delivery(self) -> bool:
        """Whether a new consumer may overtake the messages of its keys that others still hold."""
        return self._allow_out_of_order_delivery

    @property
    def sticky_ranges(self) -> list[tuple[int, int]] | None:
        """The slots of this consumer, None in AutoSplit."""
        return self._sticky_ranges

    def policy(self) -> ConsumerKeySharedPolicy:
        """The policy itself."""
        return self

    def __repr__(self) -> str:
        return f"ConsumerKeySharedPolicy({self._key_shared_mode}, sticky_ranges={self._sticky_ranges})"
