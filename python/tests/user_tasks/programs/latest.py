import sys

import pulsar

client = pulsar.Client('pulsar://localhost:6650')
reader = client.create_reader(sys.argv[1], pulsar.MessageId.latest,
                              start_message_id_inclusive=True,
                              is_read_compacted='compacted' in sys.argv)
if reader.has_message_available():
    msg = reader.read_next()
    print('deleted' if msg.has_null_value() else msg.data().decode())
else:
    print('empty')
client.close()
