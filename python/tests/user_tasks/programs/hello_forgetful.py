import pulsar

client = pulsar.Client('pulsar://localhost:6650')
producer = client.create_producer('hello', batching_enabled=True)

for i in range(10):
    producer.send_async(('hello-pulsar-%d' % i).encode('utf-8'), lambda res, msg_id: None)
