import sqlite3
import sys

import pulsar

client = pulsar.Client('pulsar://localhost:6650')
consumer = client.subscribe('measurements', 'database',
                            consumer_type=pulsar.ConsumerType.Shared,
                            initial_position=pulsar.InitialPosition.Earliest,
                            batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(int(sys.argv[2]), -1, int(sys.argv[3])))
db = sqlite3.connect(sys.argv[1])

while True:
    messages = consumer.batch_receive()
    if not messages:
        break
    with db:
        db.executemany('INSERT INTO measurements VALUES (?)', [(int(m.data()),) for m in messages])
    for m in messages:
        consumer.acknowledge(m)
    print(len(messages))

client.close()
