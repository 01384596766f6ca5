import json

import pulsar

client = pulsar.Client('pulsar://localhost:6650')
consumer = client.subscribe('orders', 'worker',
                            consumer_type=pulsar.ConsumerType.Shared,
                            negative_ack_redelivery_delay_ms=1000)
print('started', flush=True)

while True:
    msg = consumer.receive()
    try:
        order = json.loads(msg.data())
        print('order', order['id'], flush=True)
        consumer.acknowledge(msg)
    except Exception:
        print('bad', msg.data().decode(), flush=True)
        consumer.negative_acknowledge(msg)
