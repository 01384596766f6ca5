import sys
from datetime import datetime

import pulsar

start = datetime.fromisoformat(sys.argv[2])
end = datetime.fromisoformat(sys.argv[3])

client = pulsar.Client('pulsar://localhost:6650')
reader = client.create_reader(sys.argv[1], pulsar.MessageId.earliest)
reader.seek(start)
while reader.has_message_available():
    msg = reader.read_next()
    if msg.publish_timestamp() >= end.timestamp() * 1000:
        break
    print(msg.data().decode())
client.close()
