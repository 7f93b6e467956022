"""A worker that is killed while it requests a connection leaves the connection to the other workers."""

CLIENTS = 2

parent = os.getpid()
listener = socket.create_server(("127.0.0.1", 0))


def worker():
    assert select.select([listener], [], [], DEADLINE)[0]
    # The listening process does not answer while it is stopped.
    os.kill(parent, signal.SIGSTOP)
    try:
        until(lambda: state(parent) == "T", "the process runs")
        other = forked(listener.accept)
        until_asleep(other)
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)
    finally:
        os.kill(parent, signal.SIGCONT)
    for _ in range(CLIENTS):
        peer, _ = listener.accept()
        peer.sendall(b"served")
        peer.close()


def client():
    with socket.create_connection(listener.getsockname(), timeout=DEADLINE) as sock:
        assert is_offloaded(sock) and sock.recv(6) == b"served"


# A connection within the host is accepted from the kernel, without a request.
if not LOCAL:
    serving = forked(worker)
    ended(*(forked(client) for _ in range(CLIENTS)), serving)
