"""A client that has connected, written and ended before the accept is still accepted, and its bytes
can be read."""

CLIENTS = 5


def receive_from(pipe, count):
    """Reads `count` bytes."""
    got = b""
    while len(got) < count:
        got += os.read(pipe, count - len(got))
    return got


def sends_and_exits(address):
    client = socket.create_connection(address)
    client.sendall(b"data")


def sends_and_closes(address):
    with socket.create_connection(address) as client:
        client.sendall(b"data")


def shuts_down_and_waits(address):
    with socket.create_connection(address) as client:
        client.sendall(b"data")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""


def sends_and_waits(address, writer):
    client = socket.create_connection(address)
    client.sendall(b"data")
    os.write(writer, b".")
    signal.pause()


for way in (sends_and_exits, sends_and_closes, shuts_down_and_waits):
    listener = socket.create_server(("127.0.0.1", 0))
    clients = [forked(way, listener.getsockname()) for _ in range(CLIENTS)]
    if way is not shuts_down_and_waits:
        for client in clients:
            os.waitpid(client, 0)
    for _ in clients:
        assert select.select([listener], [], [], DEADLINE)[0], way.__name__
        peer, _ = listener.accept()
        assert is_offloaded(peer), way.__name__
        with peer:
            assert receive(peer, 4) == b"data", way.__name__
            assert peer.recv(1) == b"", way.__name__
    if way is shuts_down_and_waits:
        ended(*clients)
    listener.close()

# Clients that are killed. The kernel sends the bytes of a killed process, but a provider in user space
# ends with it. So each client has a listener of its own, which shows that the bytes were received.
listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(CLIENTS)]
reader, writer = os.pipe()
clients = [forked(sends_and_waits, listener.getsockname(), writer) for listener in listeners]
assert receive_from(reader, CLIENTS) == b"." * CLIENTS
for listener in listeners:
    assert select.select([listener], [], [], DEADLINE)[0], "no client to accept"
for client in clients:
    os.kill(client, signal.SIGKILL)
    os.waitpid(client, 0)
for listener in listeners:
    peer, _ = listener.accept()
    assert is_offloaded(peer)
    with peer, listener:
        assert receive(peer, 4) == b"data"
