"""Connections that a program begins without a gap are accepted in the order of its calls, once the
program has the address of the service from the port mapper."""

CLIENTS = 8

for _ in range(20):
    listener = socket.create_server(("127.0.0.1", 0), backlog=2 * CLIENTS)
    with socket.create_connection(listener.getsockname()):
        listener.accept()[0].close()
    clients = [socket.socket() for _ in range(CLIENTS)]
    for client in clients:
        client.setblocking(False)
        assert client.connect_ex(listener.getsockname()) in (0, errno.EINPROGRESS)
    ports = [client.getsockname()[1] for client in clients]
    accepted = []
    for _ in clients:
        assert select.select([listener], [], [], DEADLINE)[0]
        peer, address = listener.accept()
        assert is_offloaded(peer)
        accepted.append(ports.index(address[1]))
        peer.close()
    assert accepted == list(range(CLIENTS)), accepted
    for client in clients:
        client.close()
    listener.close()
