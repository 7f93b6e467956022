"""Two clients with one port, of which the first has ended when the second connects, are both accepted,
also if the first is offered over TCP meanwhile."""


def connections():
    """The number of established TCP sockets."""
    with open("/proc/self/net/tcp") as table:
        return sum(int(line.split()[3], 16) == 1 for line in list(table)[1:])


def sends(port, data):
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        client.bind(("127.0.0.1", port))
        client.connect(listener.getsockname())
        assert is_offloaded(client)
        client.sendall(data)


listener = socket.create_server(("127.0.0.1", 0))
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
sends(port, b"first")
sends(port, b"second")
until(lambda: connections() == 2, "the first client is not offered over TCP")
for data in (b"first", b"second"):
    assert select.select([listener], [], [], DEADLINE)[0], data
    peer, address = listener.accept()
    assert is_offloaded(peer) and address == ("127.0.0.1", port)
    with peer:
        assert peer.recv(100) == data and peer.recv(1) == b""
