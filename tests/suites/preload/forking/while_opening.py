"""Children that are forked while the first connection opens the adapter can still connect."""

CLIENTS = 12


def send_and_await_end(address):
    with socket.create_connection(address) as client:
        client.sendall(b"said")
        assert client.recv(1) == b""


def fork_with_terminal():
    # The child has its terminal while the other end is open.
    child, _ = os.forkpty()
    return child


def serve(pause, fork):
    listener = socket.create_server(("127.0.0.1", 0))
    clients = []
    for _ in range(CLIENTS):
        clients.append(forked(send_and_await_end, listener.getsockname(), fork=fork))
        # This process opens its adapter when the first client connects.
        time.sleep(pause)
    for _ in clients:
        peer, _ = listener.accept()
        with peer:
            assert receive(peer, 4) == b"said"
    ended(*clients)


# A process opens its adapter once, at an unknown time.
for number in range(16):
    for fork in (os.fork, fork_with_terminal):
        ended(forked(serve, 0.001 * (number % 8), fork))
