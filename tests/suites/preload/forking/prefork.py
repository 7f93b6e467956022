"""Workers accept from a listener that the parent made, as those of Apache and nginx do."""

WORKERS = 3
CLIENTS = 60


def answer(peer):
    assert is_offloaded(peer)
    assert peer.getsockname()[1] == port and peer.getpeername()[0] == "127.0.0.1"
    with peer:
        got = receive(peer, 1000)
        peer.sendall(bytes(reversed(got)) + bytes([os.getpid() % 256]))
        assert peer.recv(1) == b""


def by_accept(listener):
    while True:
        peer, _ = listener.accept()
        answer(peer)


def by_epoll(listener):
    listener.setblocking(False)
    waits = select.epoll()
    waits.register(listener, select.EPOLLIN | select.EPOLLEXCLUSIVE)
    while True:
        waits.poll()
        try:
            peer, _ = listener.accept()
        except BlockingIOError:
            continue
        peer.setblocking(True)
        answer(peer)


def dial(address):
    data = os.urandom(1000)
    with socket.create_connection(address) as client:
        client.sendall(data)
        got = receive(client, 1001)
        assert got[:1000] == bytes(reversed(data))
        client.shutdown(1)
        assert client.recv(1) == b""
    return got[1000]


def is_refused(address):
    try:
        socket.create_connection(address).close()
    except ConnectionRefusedError:
        return True
    return False


for way in (by_accept, by_epoll):
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    workers = [forked(way, listener) for _ in range(WORKERS)]
    # The parent may close the listener, and its children continue to listen.
    address = listener.getsockname()
    listener.close()

    def dial_all():
        import concurrent.futures

        with concurrent.futures.ThreadPoolExecutor(6) as threads:
            seen = set(threads.map(lambda _: dial(address), range(CLIENTS)))
        assert seen <= {worker % 256 for worker in workers}, (seen, workers)

    ended(forked(dial_all))
    for worker in workers:
        os.kill(worker, 9)
        os.waitpid(worker, 0)
    # No process listens any more, so clients are refused.
    until(lambda: is_refused(address), "a process still listens")
