"""A worker at its limit of descriptors gets an error, and the connection stays for the next accept by
this worker or another worker."""

CLIENTS = 4


def accepts_nothing(listener, error):
    for _ in range(3):
        assert select.select([listener], [], [], DEADLINE)[0]
        assert refused(listener.accept) == error


def serve(listener, count):
    for _ in range(count):
        peer, _ = listener.accept()
        peer.sendall(bytes(reversed(receive(peer, 4))))
        assert is_offloaded(peer)
        peer.close()


def dial(address, writer):
    clients = [socket.create_connection(address) for _ in range(CLIENTS)]
    for client in clients:
        client.sendall(b"said")
    os.write(writer, b".")
    for client in clients:
        assert receive(client, 4) == b"dias"
        assert client.recv(1) == b""


def with_clients(listener):
    reports, report = os.pipe()
    clients = forked(dial, listener.getsockname(), report)
    os.read(reports, 1)
    os.close(reports)
    os.close(report)
    return clients


def limited_worker(listener, blocking):
    listener.setblocking(blocking)
    full = use_all_numbers()
    accepts_nothing(listener, errno.EMFILE)
    for number in full:
        os.close(number)
    listener.setblocking(True)
    serve(listener, CLIENTS - 1)


def limited_in_vain(listener):
    """Accepts nothing; another worker serves the clients."""
    full = use_all_numbers()
    accepts_nothing(listener, errno.EMFILE)
    for number in full:
        os.close(number)


def by_worker():
    for blocking in (True, False):
        listener = socket.create_server(("127.0.0.1", 0))
        clients = with_clients(listener)
        ended(forked(limited_worker, listener, blocking))
        ended(forked(limited_in_vain, listener))
        ended(forked(serve, listener, 1))
        ended(clients)
        listener.close()


def serve_until_refused(listener):
    """Serves until three accepts have failed, and returns the number of clients. A client that the first
    process has offered over TCP before needs no more descriptors there, and its end makes room for the
    next client."""
    served = failed = 0
    while failed < 3 and served < CLIENTS - 1:
        assert select.select([listener], [], [], DEADLINE)[0]
        try:
            serve(listener, 1)
            served += 1
        except OSError as error:
            assert error.errno == errno.ENFILE
            failed += 1
    return served


def wait_for_room(listener, writer, numbers):
    for number in numbers:
        os.close(number)
    os.write(writer, bytes([serve_until_refused(listener)]))
    while True:
        try:
            serve(listener, 1)
        except OSError as error:
            assert error.errno == errno.ENFILE
        else:
            return


def by_owner():
    """Each connection also needs a descriptor of the first process, so that limit applies to all."""
    listener = socket.create_server(("127.0.0.1", 0))
    clients = with_clients(listener)
    said, say = os.pipe()
    full = use_all_numbers()
    worker = forked(wait_for_room, listener, say, full)
    early = os.read(said, 1)[0]
    for number in full:
        os.close(number)
    ended(worker)
    serve(listener, CLIENTS - 1 - early)
    ended(clients)
    listener.close()


resource.setrlimit(resource.RLIMIT_NOFILE, (600, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
by_worker()
if not LOCAL:
    # A connection within the host needs descriptors of its own process only.
    by_owner()
