"""Receives and waits that poll before they sleep, and what follows them: other waits, forks, signals,
other threads."""


def connection():
    listener = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(listener.getsockname())
    far = listener.accept()[0]
    listener.close()
    return near, far


def echo(far):
    """Answers each byte, until the peer's end."""
    while byte := far.recv(1):
        far.sendall(byte)
    far.close()


def exchange(near, times):
    """Makes round trips, so that the receives poll."""
    for number in range(times):
        near.sendall(bytes([number % 256]))
        assert near.recv(1) == bytes([number % 256])


def by_poll(near):
    waits = select.poll()
    waits.register(near, select.POLLIN)
    return waits.poll(DEADLINE * 1000)


def by_select(near):
    return select.select([near], [], [], DEADLINE)[0]


def by_epoll(near):
    with select.epoll() as registered:
        registered.register(near, select.EPOLLIN)
        return registered.poll(DEADLINE)


def by_system_call(near):
    """A wait that no hook sees."""
    entry = ctypes.create_string_buffer(struct.pack("ihh", near.fileno(), 1, 0), 8)
    return C.syscall(7, entry, 1, DEADLINE * 1000) == 1


def by_thread(near):
    """A wait of another thread."""
    found = []
    thread = threading.Thread(target=lambda: found.extend(by_select(near)))
    thread.start()
    thread.join()
    return found


def in_thread(work, *arguments):
    """Runs `work` in a new thread, and returns its result. The first thread of a process with more
    threads does not poll."""
    results = []
    thread = threading.Thread(target=lambda: results.append(work(*arguments)))
    thread.start()
    thread.join()
    return results[0]


# Event loops, which wait on one set for long.
def epoll_set(sock, events=select.EPOLLIN):
    waits = select.epoll()
    waits.register(sock, events)
    return lambda timeout=DEADLINE: waits.poll(timeout)


def edge_set(sock):
    return epoll_set(sock, select.EPOLLIN | select.EPOLLET)


def poll_set(sock):
    waits = select.poll()
    waits.register(sock, select.POLLIN)
    return lambda timeout=DEADLINE: waits.poll(timeout * 1000)


def select_set(sock):
    return lambda timeout=DEADLINE: select.select([sock], [], [], timeout)[0]


def echo_in_loop(far, make_set):
    """As `echo`, in an event loop."""
    far.setblocking(False)
    wait = make_set(far)
    while True:
        assert wait()
        byte = far.recv(1)
        if not byte:
            break
        far.sendall(byte)
    far.close()


def exchange_in_loop(near, wait, times):
    for number in range(times):
        near.sendall(bytes([number % 256]))
        assert wait() and near.recv(2) == bytes([number % 256])
        assert number % 50 or not wait(0.001), "an event without bytes"


def interrupted(near, wait):
    """A handler ends a wait, also one that polls. A handler that runs just before a wait does not
    end it, which happens rarely."""

    def handle(_number, _frame):
        raise InterruptedError

    signal.signal(signal.SIGALRM, handle)
    missed = 0
    for number in range(40):
        exchange_in_loop(near, wait, 5)
        end = time.monotonic() + 1
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.00005 * number + 0.0001)
            assert not wait(1), "an event without bytes"
            # CPython calls the handler at the next instruction.
            time.sleep(0)
        except InterruptedError:
            pass
        missed += time.monotonic() >= end
    assert missed <= 4, missed


def first_thread(start):
    """The first thread has the process's signals, although the other thread, which `start` makes,
    does not block them."""
    near, far = connection()
    start(lambda: echo_in_loop(far, epoll_set))
    interrupted(near, epoll_set(near))

    def by_peek(timeout=1):
        try:
            return timeout == 1 and near.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return b""

    near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 1, 0))
    interrupted(near, by_peek)
    near.close()


def start_by_c11(work):
    kept.append(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _: work() or 0))
    assert C.thrd_create(ctypes.byref(ctypes.c_ulong()), kept[0], None) == 0


kept = []
child = os.fork()
if child == 0:
    first_thread(start_by_c11)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0

# A process with one thread. The child has an end of its own.
listener = socket.create_server(("127.0.0.1", 0))
child = os.fork()
if child == 0:
    far = socket.create_connection(listener.getsockname())
    listener.close()
    echo_in_loop(far, epoll_set)
    os._exit(0)
near = listener.accept()[0]
listener.close()
exchange_in_loop(near, epoll_set(near), 300)
interrupted(near, epoll_set(near))
interrupted(near, poll_set(near))
interrupted(near, select_set(near))
near.close()
assert os.waitpid(child, 0)[1] == 0


def waits_of_all_kinds():
    near, far = connection()
    echoing = threading.Thread(target=echo, args=[far])
    echoing.start()
    exchange(near, 500)
    for waits in (by_poll, by_select, by_epoll, by_system_call, by_thread) * 5:
        exchange(near, 5)
        near.sendall(b"a")
        assert waits(near), waits.__name__
        assert near.recv(1) == b"a"

    # A child uses a connection on which its parent has polled.
    exchange(near, 5)
    child = os.fork()
    if child == 0:
        exchange(near, 20)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    exchange(near, 20)

    near.shutdown(socket.SHUT_WR)
    assert near.recv(1) == b""
    echoing.join()


def bytes_in_pieces():
    """A full length that arrives in pieces."""
    near, far = connection()

    def feed():
        for _ in range(100):
            far.sendall(b"x" * 10)
            time.sleep(0.0005)

    feeding = threading.Thread(target=feed)
    feeding.start()
    assert near.recv(10, socket.MSG_PEEK | socket.MSG_WAITALL) == b"x" * 10
    assert near.recv(1000, socket.MSG_WAITALL) == b"x" * 1000
    feeding.join()
    near.settimeout(0.05)
    try:
        near.recv(1)
        raise AssertionError("a byte that nobody sent")
    except TimeoutError:
        pass


def event_loops(make_set):
    near, far = connection()
    near.setblocking(False)
    echoing = threading.Thread(target=echo_in_loop, args=[far, make_set])
    echoing.start()
    wait = make_set(near)
    exchange_in_loop(near, wait, 500)
    near.shutdown(socket.SHUT_WR)
    assert wait() and near.recv(1) == b""
    echoing.join()


def read_in_parts():
    """A wait after a read of a part shows the rest."""
    near, far = connection()
    far.sendall(b"ab")
    wait = epoll_set(near)
    until(lambda: near.recv(2, socket.MSG_PEEK) == b"ab", "no bytes")
    for byte in (b"a", b"b"):
        assert wait() and near.recv(1) == byte
    assert not wait(0.01)


def received_by_another_thread():
    """One thread waits for a connection, from which another thread receives."""
    near, far = connection()
    near.setblocking(False)
    jobs_out, jobs = socket.socketpair()

    def receive():
        wait = epoll_set(jobs_out)
        while wait() and jobs_out.recv(1):
            near.sendall(near.recv(2))

    receiving = threading.Thread(target=receive)
    receiving.start()
    wait = edge_set(near)
    for number in range(200):
        far.sendall(bytes([number]))
        assert wait()
        jobs.sendall(b"x")
        assert far.recv(2) == bytes([number])
    jobs.close()
    receiving.join()


def listener_next_to_bytes():
    """A wait that finds bytes by a poll also reports a peer that connects."""
    near, far = connection()
    far.sendall(b"ab")
    assert by_poll(near) and near.recv(1) == b"a"
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    for make_waits in (select.poll, select.epoll):
        waits = make_waits()
        waits.register(near, select.POLLIN)
        waits.register(listener, select.POLLIN)
        until(lambda: len(waits.poll(DEADLINE)) == 2, f"the listener is not reported: {make_waits}")
    until(lambda: listener in select.select([near, listener], [], [])[0], "not reported by select")
    listener.accept()[0].sendall(b"c")
    assert client.recv(1) == b"c"


def many_at_a_time():
    """More connections than a thread polls, and bytes for all of them in one wait."""
    pairs = [connection() for _ in range(8)]
    waits = select.epoll()
    for near, _ in pairs:
        near.setblocking(False)
        waits.register(near, select.EPOLLIN)
    for count in (1, 2, 4, 5, 8) * 20:
        left = {near.fileno(): near for near, _ in pairs[:count]}
        for _, far in pairs[:count]:
            far.sendall(b"y")
        while left:
            for number, _ in waits.poll(DEADLINE):
                assert left.pop(number).recv(2) == b"y"


in_thread(waits_of_all_kinds)
in_thread(bytes_in_pieces)
for make_set in (epoll_set, edge_set, poll_set, select_set):
    in_thread(event_loops, make_set)
in_thread(read_in_parts)
in_thread(received_by_another_thread)
in_thread(listener_next_to_bytes)
in_thread(many_at_a_time)

first_thread(lambda work: threading.Thread(target=work).start())
