"""The listening process is killed while other processes wait for connections: these serve peers on TCP
at once, and offloaded peers as soon as one of the processes listens in its place."""


def by_accept(listener):
    pass


def by_accept_in_time(listener):
    timeout = (2 * DEADLINE).to_bytes(8, "little") + bytes(8)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)


def by_poll(listener):
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    assert poll.poll()


def by_poll_in_time(listener):
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    assert poll.poll(2000 * DEADLINE)


def by_select(listener):
    assert select.select([listener], [], [], 2 * DEADLINE)[0]


def by_epoll(listener):
    waits = sets.setdefault(threading.get_ident(), select.epoll())
    try:
        waits.register(listener, select.EPOLLIN | select.EPOLLEXCLUSIVE)
    except FileExistsError:
        pass
    assert waits.poll(2 * DEADLINE)


def serve(listener, way):
    if way not in (by_accept, by_accept_in_time):
        listener.setblocking(False)
    while True:
        way(listener)
        try:
            peer, _ = listener.accept()
        except BlockingIOError:
            continue
        peer.setblocking(True)
        with peer:
            peer.sendall(bytes(reversed(receive(peer, 100))))


def work(listener, way):
    for _ in range(2):
        threading.Thread(target=serve, args=[listener, way], daemon=True).start()
    signal.pause()


def dial(address):
    """Connects, and is served in any case. Returns true if the connection was offloaded."""
    reader, writer = os.pipe()
    # A new process, because a process remembers for a while that a service was not offered.
    ended(forked(exchange, address, writer))
    os.close(writer)
    with open(reader) as answer:
        return answer.read() == "True"


def exchange(address, writer):
    with socket.create_connection(address, timeout=DEADLINE) as client:
        data = os.urandom(100)
        client.sendall(data)
        assert receive(client, 100) == bytes(reversed(data))
        os.write(writer, str(is_offloaded(client)).encode())


def until_offloaded(address, way):
    end = time.monotonic() + DEADLINE
    while not dial(address):
        assert time.monotonic() < end, way.__name__


def kill(process):
    """Kills a process and waits for the end of all its threads, which keep its sockets open."""
    os.kill(process, signal.SIGKILL)
    try:
        while os.listdir(f"/proc/{process}/task") != [str(process)] or state(process) != "Z":
            time.sleep(0.01)
    except FileNotFoundError:
        pass


def play(way):
    reader, writer = os.pipe()
    owner = os.fork()
    if owner == 0:
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        workers = [forked(work, listener, way) for _ in range(2)]
        os.write(writer, repr((listener.getsockname(), workers)).encode())
        listener.close()
        signal.pause()
    address, workers = eval(os.read(reader, 200))

    def be_the_peer():
        until_offloaded(address, way)
        # The threads have been waiting for a while.
        time.sleep(0.2)
        kill(owner)
        for _ in range(3):
            dial(address)
            until_offloaded(address, way)
        for _ in range(20):
            dial(address)
        # One of the waiting processes is killed, too.
        kill(workers[0])
        for _ in range(20):
            dial(address)
        kill(workers[1])

    ended(forked(be_the_peer))
    os.waitpid(owner, 0)


sets = {}
for way in (by_accept, by_accept_in_time, by_poll, by_poll_in_time, by_select, by_epoll):
    play(way)
