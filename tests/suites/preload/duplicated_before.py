"""Sockets that were duplicated before they connect or listen can be used by all their numbers."""


def echo(one, other):
    for sender, receiver in ((one, other), (other, one)):
        sender.sendall(b"ping")
        assert receiver.recv(4) == b"ping"


def connect(listener):
    client = socket.create_connection(listener.getsockname(), timeout=DEADLINE)
    return client, is_offloaded(client)


listener = socket.create_server(("127.0.0.1", 0))
client = socket.socket()
other = client.dup()
third = os.dup(other.fileno())
client.connect(listener.getsockname())
server = listener.accept()[0]
for one in (client, other, socket.socket(fileno=third)):
    one.settimeout(DEADLINE)
    echo(one, server)
for one in (client, other, server):
    one.close()

# A socket that was moved to another number has no duplicate.
for move in (socket.socket.dup, lambda one: socket.socket(fileno=os.dup2(one.fileno(), 600))):
    before = socket.socket()
    client = move(before)
    before.close()
    client.connect(listener.getsockname())
    server = listener.accept()[0]
    assert is_offloaded(client) and is_offloaded(server)
    echo(client, server)
    client.close()
    server.close()
listener.close()

# Each number of a listener accepts all clients.
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
other = listener.dup()
listener.listen()
for accepting in (listener, other):
    client = socket.create_connection(listener.getsockname(), timeout=DEADLINE)
    assert select.select([accepting], [], [], DEADLINE)[0], "no client"
    server = accepting.accept()[0]
    echo(client, server)
    client.close()
    server.close()
listener.close()

# The listener has only one number now, and is offered when it listens again.
other.listen()
client, offloaded = connect(other)
server = other.accept()[0]
assert is_offloaded(server) == offloaded
echo(client, server)
