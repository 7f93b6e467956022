"""At the limit of descriptors `accept` returns EMFILE, and waiting peers stay in the queue."""

LIMIT = 600
NATIVE = "127.0.0.2"
OFFLOADED = "127.0.0.1"


def dial(port, hosts, report, ends):
    """Clients without the limit, each of which sends its number."""
    clients = []
    for number, host in enumerate(hosts):
        client = socket.create_connection((host, port))
        client.sendall(bytes([number]))
        clients.append(client)
    os.write(report, b".")
    os.read(ends, 1)
    for number, client in enumerate(clients):
        assert client.recv(1) == bytes([number])
        assert client.recv(1) == b""


def play(hosts, blocking):
    listener = socket.create_server(("0.0.0.0", 0))
    reports, report = os.pipe()
    ends, end = os.pipe()
    clients = os.fork()
    if clients == 0:
        try:
            os.close(end)
            port = listener.getsockname()[1]
            listener.close()
            dial(port, hosts, report, ends)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(ends)
    os.close(report)
    listener.setblocking(blocking)
    assert os.read(reports, 1), "somebody could not connect"
    assert select.select([listener], [], [], DEADLINE)[0]
    # The bytes of the clients have been received, too.
    let_others_run(20)
    full = use_all_numbers()
    for _ in range(3):
        assert refused(listener.accept) == errno.EMFILE
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        assert poll.poll(0), "somebody waits"
    for number in full:
        os.close(number)
    seen = {}
    for _ in hosts:
        peer, address = listener.accept()
        peer.setblocking(True)
        peer.settimeout(DEADLINE)
        said = peer.recv(1)
        peer.sendall(said)
        seen[said[0]] = is_offloaded(peer)
        peer.close()
    assert sorted(seen) == list(range(len(hosts))), seen
    for number, host in enumerate(hosts):
        assert seen[number] == (host == OFFLOADED), (seen, hosts)
    listener.setblocking(False)
    try:
        listener.accept()
        raise AssertionError("somebody else")
    except BlockingIOError:
        pass
    os.close(end)
    os.close(reports)
    assert os.waitpid(clients, 0)[1] == 0
    listener.close()


resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for hosts in ([NATIVE] * 3, [OFFLOADED] * 3, [NATIVE, OFFLOADED] * 3):
    for blocking in (False, True):
        play(hosts, blocking)
