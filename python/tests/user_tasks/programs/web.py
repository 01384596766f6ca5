import pulsar

client = pulsar.Client('pulsar://localhost:6650')
producer = client.create_producer('events', send_timeout_millis=1000)


def application(environ, start_response):
    try:
        producer.send(environ['PATH_INFO'].encode())
    except pulsar.PulsarException as error:
        start_response('500 Internal Server Error', [('Content-Type', 'text/plain')])
        return [str(error).encode()]
    start_response('200 OK', [('Content-Type', 'text/plain')])
    return [b'stored']
