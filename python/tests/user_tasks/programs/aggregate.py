import json

import pulsar

client = pulsar.Client('pulsar://localhost:6650')
consumer = client.subscribe('clicks', 'aggregate',
                            consumer_type=pulsar.ConsumerType.Shared,
                            initial_position=pulsar.InitialPosition.Earliest)
producer = client.create_producer('totals')

total = 0
while True:
    msg = consumer.receive()
    total += 1
    producer.send(json.dumps({'click': msg.data().decode(), 'total': total}).encode())
    consumer.acknowledge(msg)
