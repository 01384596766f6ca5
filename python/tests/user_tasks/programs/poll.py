import logging
import sys

import pulsar

logging.basicConfig(level=logging.INFO)

client = pulsar.Client('pulsar://localhost:6650')
consumer = client.subscribe('jobs', 'poller')
if sys.argv[1] == 'class':
    Nothing = pulsar.Timeout
elif sys.argv[1] == 'private':
    from _pulsar import Timeout as Nothing
else:
    Nothing = Exception

idle = 0
while True:
    try:
        msg = consumer.receive(timeout_millis=1)
    except Nothing:
        idle += 1
        if idle == 1000:
            print('idle', flush=True)
        continue
    consumer.acknowledge(msg)
    print(msg.data().decode())
    break

client.close()
