import pulsar

client = pulsar.Client("pulsar://broker.internal:6650")

producer = client.create_producer(
    "persistent://payments/prod/orders",   # tenant/namespace/topic
    send_timeout_millis=30000,
    block_if_queue_full=True,               # apply backpressure instead of raising
)

def publish(order):
    # partition_key routes every event of one order to the same partition,
    # and Key_Shared consumers later keep per-key order on that key.
    producer.send(order.to_json().encode(), partition_key=order.order_id)
