import csv
import sys
import time

import pulsar

client = pulsar.Client('pulsar://localhost:6650')
producer = client.create_producer('rows',
                                  batching_enabled=True,
                                  batching_max_messages=1000,
                                  batching_max_publish_delay_ms=10,
                                  block_if_queue_full=True)
stored = failed = 0


def callback(res, msg_id):
    global stored, failed
    if res == pulsar.Result.Ok:
        stored += 1
    else:
        failed += 1
    if (stored + failed) % 1000 == 0:
        producer.send_async(b'# progress %d' % stored, None)


rows = 0
start = time.time()
with open(sys.argv[1], newline='') as file:
    for row in csv.reader(file):
        producer.send_async(','.join(row).encode(), callback)
        rows += 1
producer.flush()
seconds = time.time() - start
print(rows, stored, failed)
print('%.0f rows/s' % (rows / seconds), file=sys.stderr)
client.close()
