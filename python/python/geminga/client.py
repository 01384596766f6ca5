"""The client: what it opens, with the keywords and defaults of the existing client."""

from __future__ import annotations

import re
import warnings

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, Union

from geminga import _geminga, logs
from geminga import schema as _schema
from geminga.authentication import Authentication
from geminga.enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
    KeySharedMode,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from geminga.policies import ConsumerBatchReceivePolicy, ConsumerDeadLetterPolicy, ConsumerKeySharedPolicy
from geminga.schema import AnySchema, BytesSchema

if TYPE_CHECKING:
    from geminga._geminga import Consumer, Message, MessageId, Producer, Reader
    from geminga.not_yet import CryptoKeyReader, ServiceInfo, TableView
    from geminga.routing import OutgoingMessage

    _Handle = TypeVar("_Handle", Consumer, Reader)

#: What ``subscribe`` takes for a topic; several and patterns are not served yet.
AnyTopic = Union[str, list[str], re.Pattern[str]]

#: What ``batch_receive`` gathers without a policy: any number of messages, 10 MiB, 100 ms.
_DEFAULT_BATCH = ConsumerBatchReceivePolicy(-1, 10 * 1024 * 1024, 100)

#: The largest number that the existing client takes for a count or a time.
_MOST = 2**31 - 1


class Client:
    """One Pulsar client: it opens producers, consumers and readers, which share its connections.

    >>> service_url  # doctest: +SKIP
    'pulsar://localhost:6650'
    >>> with Client(service_url) as client:
    ...     message_id = client.create_producer("greetings").send(b"hello")

    It is safe to use from any thread, works on a thread of its own, and closes with ``close``, at the end of a ``with`` block, or
    when the interpreter ends. After ``os.fork`` the child makes its own client; this one raises ForkedProcess there.

    - ``service_url``: ``pulsar://host:6650`` or ``pulsar+ssl://host:6651``, several hosts between commas.
    - ``authentication``: an ``AuthenticationToken`` or ``AuthenticationTLS``.
    - ``operation_timeout_seconds``: how long opening, closing and asking may take.
    - ``use_tls``, ``tls_trust_certs_file_path`` (PEM), ``tls_certificate_file_path`` with ``tls_private_key_file_path`` (PEM). The broker's
      certificate must be for the host name connected to; only ``tls_allow_insecure_connection`` turns that off.
    - ``logger``: a ``logging.Logger``, ``ConsoleLogger`` or ``FileLogger`` that gets the records of this client, from its level on as it is
      now; without one they go to the logger ``geminga``.
    - ``connection_timeout_ms``: milliseconds for TCP, TLS and the handshake. ``listener_name``: an advertised listener.
    - ``io_threads``, ``message_listener_threads``, ``stats_interval_in_seconds``: accepted and not needed.

    Raises ValueError for arguments of a wrong type, InvalidUrl (a ValueError too) for a bad URL.
    """

    def __init__(
        self,
        service_url: str,
        authentication: Authentication | None = None,
        operation_timeout_seconds: float = 30,
        io_threads: int = 1,
        message_listener_threads: int = 1,
        concurrent_lookup_requests: int = 50000,
        log_conf_file_path: str | None = None,
        stats_interval_in_seconds: int = 600,
        use_tls: bool = False,
        tls_trust_certs_file_path: str | None = None,
        tls_allow_insecure_connection: bool = False,
        tls_validate_hostname: bool = False,
        logger: logs.AnyLogger | None = None,
        connection_timeout_ms: int = 10000,
        listener_name: str | None = None,
        tls_private_key_file_path: str | None = None,
        tls_certificate_file_path: str | None = None,
    ) -> None:
        _check(str, service_url, "service_url")
        _check(Authentication, authentication, "authentication", optional=True)
        _check((int, float), operation_timeout_seconds, "operation_timeout_seconds")
        _check_count(concurrent_lookup_requests, "concurrent_lookup_requests")
        _check(bool, use_tls, "use_tls")
        _check(str, tls_trust_certs_file_path, "tls_trust_certs_file_path", optional=True)
        _check(bool, tls_allow_insecure_connection, "tls_allow_insecure_connection")
        _check(bool, tls_validate_hostname, "tls_validate_hostname")
        _check_count(connection_timeout_ms, "connection_timeout_ms")
        _check(str, listener_name, "listener_name", optional=True)
        _check(str, tls_private_key_file_path, "tls_private_key_file_path", optional=True)
        _check(str, tls_certificate_file_path, "tls_certificate_file_path", optional=True)
        if service_url.startswith(("http://", "https://")):
            raise _not_yet("an http(s) service URL")
        if log_conf_file_path is not None:
            raise _not_yet("log_conf_file_path")
        if use_tls and service_url.startswith("pulsar://"):
            service_url = "pulsar+ssl://" + service_url.removeprefix("pulsar://")
        certificate = (tls_certificate_file_path, tls_private_key_file_path)
        if (certificate[0] is None) != (certificate[1] is None):
            raise ValueError("tls_certificate_file_path and tls_private_key_file_path go together")
        client_logger = logs.start(logger)
        self._service_url = service_url
        # As in the existing client, consumers and readers stay open until they or their client are closed.
        self._held: list[Consumer | Reader] = []
        self._core = _geminga.ClientCore(
            service_url,
            {
                "authentication": authentication._credentials if authentication else None,
                "operation_timeout_seconds": operation_timeout_seconds,
                "concurrent_lookup_requests": concurrent_lookup_requests,
                "tls_trust_certs_file_path": tls_trust_certs_file_path,
                "tls_allow_insecure_connection": tls_allow_insecure_connection,
                "connection_timeout_ms": connection_timeout_ms,
                "listener_name": listener_name,
                "tls_certificate": certificate if certificate[0] else None,
                "logger": client_logger,
            },
        )

    def create_producer(
        self,
        topic: str,
        producer_name: str | None = None,
        schema: AnySchema = BytesSchema,
        initial_sequence_id: int | None = None,
        send_timeout_millis: int = 30000,
        compression_type: CompressionType = CompressionType.NONE,
        max_pending_messages: int = 1000,
        max_pending_messages_across_partitions: int = 50000,
        block_if_queue_full: bool = False,
        batching_enabled: bool = False,
        batching_max_messages: int = 1000,
        batching_max_allowed_size_in_bytes: int = 131072,
        batching_max_publish_delay_ms: int = 10,
        chunking_enabled: bool = False,
        message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution,
        lazy_start_partitioned_producers: bool = False,
        properties: dict[str, str] | None = None,
        batching_type: BatchingType = BatchingType.Default,
        encryption_key: str | None = None,
        crypto_key_reader: CryptoKeyReader | None = None,
        access_mode: ProducerAccessMode = ProducerAccessMode.Shared,
        message_router: Callable[[OutgoingMessage, int], int] | None = None,
    ) -> Producer:
        """Opens a producer on ``topic``; returns when the broker has accepted it.

        - ``producer_name``: unique on the topic; the broker generates one when it is None. ``initial_sequence_id``: the last one used.
        - ``send_timeout_millis``: how long a message may wait to be stored; 0 for ever.
        - ``max_pending_messages``: messages on their way, over all partitions; further sends raise ProducerQueueIsFull, or wait with
          ``block_if_queue_full``. 0 is no limit.
        - ``batching_*``: messages are gathered until their number, their bytes or the time (milliseconds) is reached.
        - ``message_router``: ``f(message, partitions) -> int`` with ``PartitionsRoutingMode.CustomPartition``, called by the sender.

        Raises what the broker refuses it for (ProducerBusy, TopicNotFound, AuthorizationError), Timeout, InvalidTopicName.
        """
        options = self._producer_options(
            producer_name=producer_name,
            schema=schema,
            initial_sequence_id=initial_sequence_id,
            send_timeout_millis=send_timeout_millis,
            compression_type=compression_type,
            max_pending_messages=max_pending_messages,
            max_pending_messages_across_partitions=max_pending_messages_across_partitions,
            block_if_queue_full=block_if_queue_full,
            batching_enabled=batching_enabled,
            batching_max_messages=batching_max_messages,
            batching_max_allowed_size_in_bytes=batching_max_allowed_size_in_bytes,
            batching_max_publish_delay_ms=batching_max_publish_delay_ms,
            chunking_enabled=chunking_enabled,
            message_routing_mode=message_routing_mode,
            lazy_start_partitioned_producers=lazy_start_partitioned_producers,
            properties=properties,
            batching_type=batching_type,
            encryption_key=encryption_key,
            crypto_key_reader=crypto_key_reader,
            access_mode=access_mode,
            message_router=message_router,
        )
        _check(str, topic, "topic")
        return self._core.create_producer(topic, options)

    def subscribe(
        self,
        topic: AnyTopic,
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        schema: AnySchema = BytesSchema,
        message_listener: Callable[[Consumer, Message], Any] | None = None,
        receiver_queue_size: int = 1000,
        max_total_receiver_queue_size_across_partitions: int = 50000,
        consumer_name: str | None = None,
        unacked_messages_timeout_ms: int | None = None,
        broker_consumer_stats_cache_time_ms: int = 30000,
        negative_ack_redelivery_delay_ms: int = 60000,
        is_read_compacted: bool = False,
        properties: dict[str, str] | None = None,
        pattern_auto_discovery_period: int = 60,
        initial_position: InitialPosition = InitialPosition.Latest,
        crypto_key_reader: CryptoKeyReader | None = None,
        replicate_subscription_state_enabled: bool = False,
        max_pending_chunked_message: int = 10,
        auto_ack_oldest_chunked_message_on_queue_full: bool = False,
        start_message_id_inclusive: bool = False,
        batch_receive_policy: ConsumerBatchReceivePolicy | None = None,
        key_shared_policy: ConsumerKeySharedPolicy | None = None,
        batch_index_ack_enabled: bool = False,
        regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly,
        dead_letter_policy: ConsumerDeadLetterPolicy | None = None,
        crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
    ) -> Consumer:
        """Opens a consumer of ``topic`` in a subscription; returns when the broker has accepted it.

        - ``initial_position``: where a subscription that doesn't exist yet starts.
        - ``message_listener``: ``f(consumer, message)``, called for each message on the client's listener thread. What it raises is
          reported by ``sys.unraisablehook``; the message stays unacknowledged.
        - ``receiver_queue_size``: messages asked for ahead of the application; 0 asks for one at each receive.
        - ``negative_ack_redelivery_delay_ms``: milliseconds before a negatively acknowledged message comes again.
        - ``batch_receive_policy``, ``key_shared_policy``, ``dead_letter_policy``: see there.
        - ``properties``: dict of str to str, shown in topic statistics.

        Raises what the broker refuses it for (ConsumerBusy, TopicNotFound, AuthorizationError), Timeout, InvalidTopicName.
        """
        options = self._consumer_options(
            consumer_type=consumer_type,
            schema=schema,
            message_listener=message_listener,
            receiver_queue_size=receiver_queue_size,
            max_total_receiver_queue_size_across_partitions=max_total_receiver_queue_size_across_partitions,
            consumer_name=consumer_name,
            unacked_messages_timeout_ms=unacked_messages_timeout_ms,
            negative_ack_redelivery_delay_ms=negative_ack_redelivery_delay_ms,
            is_read_compacted=is_read_compacted,
            properties=properties,
            initial_position=initial_position,
            crypto_key_reader=crypto_key_reader,
            replicate_subscription_state_enabled=replicate_subscription_state_enabled,
            start_message_id_inclusive=start_message_id_inclusive,
            batch_receive_policy=batch_receive_policy,
            key_shared_policy=key_shared_policy,
            batch_index_ack_enabled=batch_index_ack_enabled,
            dead_letter_policy=dead_letter_policy,
            crypto_failure_action=crypto_failure_action,
        )
        topic = _one_topic(topic)
        _check(str, subscription_name, "subscription_name")
        return self._hold(self._core.subscribe(topic, subscription_name, options))

    def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        schema: AnySchema = BytesSchema,
        reader_listener: Callable[[Reader, Message], Any] | None = None,
        receiver_queue_size: int = 1000,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        is_read_compacted: bool = False,
        crypto_key_reader: CryptoKeyReader | None = None,
        start_message_id_inclusive: bool = False,
        crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
    ) -> Reader:
        """Opens a reader of ``topic`` behind ``start_message_id``, or at it with ``start_message_id_inclusive``.

        ``reader_listener``: ``f(reader, message)``, called for each message on the client's listener thread. Raises as ``subscribe``.
        """
        options = self._reader_options(
            schema=schema,
            reader_listener=reader_listener,
            receiver_queue_size=receiver_queue_size,
            reader_name=reader_name,
            subscription_role_prefix=subscription_role_prefix,
            is_read_compacted=is_read_compacted,
            crypto_key_reader=crypto_key_reader,
            start_message_id_inclusive=start_message_id_inclusive,
            crypto_failure_action=crypto_failure_action,
        )
        _check(str, topic, "topic")
        _check(_geminga.MessageId, start_message_id, "start_message_id")
        return self._hold(self._core.create_reader(topic, start_message_id, options))

    def create_table_view(
        self, topic: str, subscription_name: str | None = None, schema: AnySchema = BytesSchema
    ) -> TableView:
        """Not in this version: table views."""
        raise _not_yet("create_table_view")

    def get_topic_partitions(self, topic: str) -> list[str]:
        """The full names of a topic's partitions; the topic itself when it has none."""
        _check(str, topic, "topic")
        return _partition_names(topic, self._core.partitions(topic))

    def get_service_info(self) -> ServiceInfo:
        """Not in this version."""
        raise _not_yet("get_service_info")

    def close(self) -> None:
        """Waits for messages on their way, up to the operation timeout, then closes everything this client opened.

        Acknowledgements are sent before. Closing twice is fine.
        """
        self._core.close()
        self._held.clear()

    def shutdown(self) -> None:
        """The same as ``close``."""
        self.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        foreign = "" if self._core.is_of_this_process() else ", of another process"
        return f"<Client of {self._service_url}{foreign}>"

    def _hold(self, handle: _Handle) -> _Handle:
        self._held = [other for other in self._held if not other._is_closed()]
        self._held.append(handle)
        return handle

    @staticmethod
    def _producer_options(
        *,
        schema: AnySchema,
        max_pending_messages_across_partitions: int,
        chunking_enabled: bool,
        message_routing_mode: PartitionsRoutingMode,
        lazy_start_partitioned_producers: bool,
        properties: dict[str, str] | None,
        batching_type: BatchingType,
        encryption_key: str | None,
        crypto_key_reader: CryptoKeyReader | None,
        message_router: Callable[[OutgoingMessage, int], int] | None,
        **options: Any,
    ) -> dict[str, Any]:
        """What the extension module takes, from the arguments of ``create_producer``."""
        _check(str, options["producer_name"], "producer_name", optional=True)
        _check(int, options["initial_sequence_id"], "initial_sequence_id", optional=True)
        for name in (
            "send_timeout_millis",
            "max_pending_messages",
            "batching_max_messages",
            "batching_max_allowed_size_in_bytes",
            "batching_max_publish_delay_ms",
        ):
            _check_count(options[name], name)
        _check_count(max_pending_messages_across_partitions, "max_pending_messages_across_partitions")
        _check(bool, options["block_if_queue_full"], "block_if_queue_full")
        _check(bool, options["batching_enabled"], "batching_enabled")
        _check(CompressionType, options["compression_type"], "compression_type")
        _check(PartitionsRoutingMode, message_routing_mode, "message_routing_mode")
        _check(ProducerAccessMode, options["access_mode"], "access_mode")
        if batching_type != BatchingType.Default:
            raise _not_yet("batching_type=BatchingType.KeyBased")
        if chunking_enabled:
            raise _not_yet("chunking_enabled")
        if encryption_key is not None or crypto_key_reader is not None:
            raise _not_yet("encryption (encryption_key, crypto_key_reader)")
        if message_routing_mode == PartitionsRoutingMode.CustomPartition and message_router is None:
            raise ValueError("PartitionsRoutingMode.CustomPartition needs a message_router")
        return {
            **options,
            # As there, an empty name is none.
            "producer_name": options["producer_name"] or None,
            "properties": _properties(properties),
            "message_routing_mode": message_routing_mode,
            "schema": _schema.native(schema),
            "message_router": message_router,
        }

    @staticmethod
    def _consumer_options(
        *,
        schema: AnySchema,
        unacked_messages_timeout_ms: int | None,
        properties: dict[str, str] | None,
        crypto_key_reader: CryptoKeyReader | None,
        replicate_subscription_state_enabled: bool,
        batch_receive_policy: ConsumerBatchReceivePolicy | None,
        key_shared_policy: ConsumerKeySharedPolicy | None,
        dead_letter_policy: ConsumerDeadLetterPolicy | None,
        crypto_failure_action: ConsumerCryptoFailureAction,
        **options: Any,
    ) -> dict[str, Any]:
        """What the extension module takes, from the arguments of ``subscribe``."""
        _check(ConsumerType, options["consumer_type"], "consumer_type")
        _check(InitialPosition, options["initial_position"], "initial_position")
        _check_count(options["receiver_queue_size"], "receiver_queue_size")
        _check_count(
            options["max_total_receiver_queue_size_across_partitions"],
            "max_total_receiver_queue_size_across_partitions",
        )
        _check_count(options["negative_ack_redelivery_delay_ms"], "negative_ack_redelivery_delay_ms")
        _check(str, options["consumer_name"], "consumer_name", optional=True)
        _check(bool, options["is_read_compacted"], "is_read_compacted")
        _check(ConsumerBatchReceivePolicy, batch_receive_policy, "batch_receive_policy", optional=True)
        _check(ConsumerKeySharedPolicy, key_shared_policy, "key_shared_policy", optional=True)
        _check(ConsumerDeadLetterPolicy, dead_letter_policy, "dead_letter_policy", optional=True)
        if unacked_messages_timeout_ms:
            raise _not_yet("unacked_messages_timeout_ms")
        if replicate_subscription_state_enabled:
            raise _not_yet("replicate_subscription_state_enabled")
        _refuse_encryption(crypto_key_reader, crypto_failure_action)
        shared = options["consumer_type"] in (ConsumerType.Shared, ConsumerType.KeyShared)
        if dead_letter_policy is not None and not shared:
            warnings.warn(
                f"dead_letter_policy has no effect on {options['consumer_type']}: brokers count redeliveries on Shared and "
                "KeyShared only",
                RuntimeWarning,
                stacklevel=3,
            )
            dead_letter_policy = None
        sticky = None
        if key_shared_policy is not None:
            if key_shared_policy.allow_out_of_order_delivery:
                raise _not_yet("allow_out_of_order_delivery")
            if key_shared_policy.key_shared_mode == KeySharedMode.Sticky:
                sticky = key_shared_policy.sticky_ranges
        return {
            **options,
            "consumer_name": options["consumer_name"] or None,
            "properties": _properties(properties),
            "sticky_ranges": sticky,
            "dead_letter_policy": dead_letter_policy and dead_letter_policy._native(),
            "batch_receive_policy": (batch_receive_policy or _DEFAULT_BATCH).policy(),
            "schema": _schema.native(schema),
        }

    @staticmethod
    def _reader_options(
        *,
        schema: AnySchema,
        subscription_role_prefix: str | None,
        crypto_key_reader: CryptoKeyReader | None,
        crypto_failure_action: ConsumerCryptoFailureAction,
        **options: Any,
    ) -> dict[str, Any]:
        """What the extension module takes, from the arguments of ``create_reader``."""
        _check_count(options["receiver_queue_size"], "receiver_queue_size")
        _check(str, options["reader_name"], "reader_name", optional=True)
        _check(str, subscription_role_prefix, "subscription_role_prefix", optional=True)
        _check(bool, options["is_read_compacted"], "is_read_compacted")
        _refuse_encryption(crypto_key_reader, crypto_failure_action)
        name = None
        if subscription_role_prefix:
            import uuid

            name = f"{subscription_role_prefix}-{uuid.uuid4().hex[:10]}"
        options["reader_name"] = options["reader_name"] or None
        return {**options, "subscription_name": name, "schema": _schema.native(schema)}


def _check(expected: type | tuple[type, ...], value: object, name: str, optional: bool = False) -> None:
    if isinstance(value, expected) or (optional and value is None):
        return
    names = [t.__name__ for t in expected] if isinstance(expected, tuple) else [expected.__name__]
    raise ValueError(
        f"Argument {name} is expected to be of type '{' or '.join(names)}' and not '{type(value).__name__}'"
    )


def _check_count(value: int, name: str) -> None:
    _check(int, value, name)
    if value < 0:
        raise ValueError(f"Argument {name} must not be negative, and is {value}")
    if value > _MOST:
        raise ValueError(f"Argument {name} must not be over {_MOST}, and is {value}")


def _properties(properties: dict[str, str] | None) -> dict[str, str]:
    _check(dict, properties, "properties", optional=True)
    for key, value in (properties or {}).items():
        _check(str, key, "properties")
        _check(str, value, "properties")
    return properties or {}


def _one_topic(topic: AnyTopic) -> str:
    if isinstance(topic, list) and len(topic) == 1:
        topic = topic[0]
    if isinstance(topic, list):
        raise _not_yet("subscribing to several topics at once")
    if isinstance(topic, re.Pattern):
        raise _not_yet("subscribing by pattern")
    _check(str, topic, "topic")
    return topic


def _partition_names(topic: str, partitions: int) -> list[str]:
    if "://" not in topic:
        topic = "persistent://" + (topic if topic.count("/") == 2 else f"public/default/{topic}")
    return [f"{topic}-partition-{i}" for i in range(partitions)] or [topic]


def _refuse_encryption(
    crypto_key_reader: CryptoKeyReader | None, crypto_failure_action: ConsumerCryptoFailureAction
) -> None:
    if crypto_key_reader is not None:
        raise _not_yet("encryption (crypto_key_reader)")
    if crypto_failure_action != ConsumerCryptoFailureAction.FAIL:
        raise _not_yet(f"crypto_failure_action={crypto_failure_action}")


def _not_yet(feature: str) -> NotImplementedError:
    return NotImplementedError(f"{feature} is not supported by this version of geminga")
