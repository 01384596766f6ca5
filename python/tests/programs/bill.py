import pulsar

client = pulsar.Client("pulsar://broker.internal:6650")

consumer = client.subscribe(
    "persistent://payments/prod/orders",
    subscription_name="billing",
    consumer_type=pulsar.ConsumerType.KeyShared,   # scale out, keep per-key order
    negative_ack_redelivery_delay_ms=10000,
    dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(
        max_redeliver_count=5,
        dead_letter_topic="persistent://payments/prod/orders-billing-DLQ",
    ),
)

while True:
    msg = consumer.receive()
    try:
        bill(msg.data())                 # must be idempotent: delivery is at-least-once
        consumer.acknowledge(msg)        # moves this subscription's cursor
    except Exception:
        consumer.negative_acknowledge(msg)   # redeliver; DLQ after 5 attempts
