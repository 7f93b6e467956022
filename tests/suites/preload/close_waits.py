"""Waits in quick succession: a waiting thread may serve the stack meanwhile, which must not affect
other threads."""

ROUNDS = 2000
EVENTS = ctypes.create_string_buffer(12)

listener = socket.create_server(("127.0.0.1", 0))
echo = os.fork()
if echo == 0:
    # Connections are made after the fork, so each end belongs to one process.
    with select.epoll() as epoll:
        epoll.register(listener, select.EPOLLIN)
        conns = {}
        while True:
            for number, _ in epoll.poll():
                if number == listener.fileno():
                    conn, _ = listener.accept()
                    conns[conn.fileno()] = conn
                    epoll.register(conn, select.EPOLLIN)
                elif data := conns[number].recv(65536):
                    conns[number].sendall(data)
                else:
                    epoll.unregister(number)
                    conns.pop(number).close()
                    if not conns:
                        os._exit(0)


def connect():
    conn = socket.create_connection(listener.getsockname())
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return conn


def by_epoll(conn):
    with select.epoll() as epoll:
        epoll.register(conn, select.EPOLLIN | select.EPOLLET)
        yield from iter(lambda: bool(epoll.poll(DEADLINE)), None)


def by_poll(conn):
    poller = select.poll()
    poller.register(conn, select.POLLIN)
    yield from iter(lambda: bool(poller.poll(DEADLINE * 1000)), None)


def by_select(conn):
    yield from iter(lambda: bool(select.select([conn], [], [], DEADLINE)[0]), None)


def by_busy_polling(conn):
    """A loop that polls without sleeping."""
    poller = select.poll()
    poller.register(conn, select.POLLIN)
    while True:
        while not poller.poll(0):
            pass
        yield True


def ping_pong(conn, waits, rounds=ROUNDS):
    for number in range(rounds):
        word = b"%d" % number
        conn.sendall(word)
        received = b""
        while len(received) < len(word):
            assert next(waits), f"round {number}"
            received += conn.recv(len(word))
        assert received == word


first, second = connect(), connect()
for way in (by_epoll, by_poll, by_select, by_busy_polling, by_epoll):
    ping_pong(first, way(first))
    ping_pong(second, way(second), 10)

# Bytes that are received while no thread waits can be read later, by any call.
ping_pong(first, by_epoll(first))
second.sendall(b"later")
assert second.recv(5, socket.MSG_WAITALL) == b"later"

# Another thread's call is served although this thread no longer waits.
received = []
reader = threading.Thread(target=lambda: received.append(second.recv(7, socket.MSG_WAITALL)))
ping_pong(first, by_epoll(first))
reader.start()
second.sendall(b"threads")
reader.join(DEADLINE)
assert received == [b"threads"], received

# Two threads wait at the same time, for different connections.
threads = [
    threading.Thread(target=lambda c=c, w=w: (ping_pong(c, w(c), 500), received.append(w)))
    for c, w in ((first, by_epoll), (second, by_poll))
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(DEADLINE)
assert len(received) == 3, received

# A signal ends a wait that follows other waits, as it ends the first wait.
handled = []
main = threading.get_ident()
signal.signal(signal.SIGALRM, lambda *_: handled.append(1))
with select.epoll() as epoll:
    epoll.register(first, select.EPOLLIN)
    for number in range(10):
        ping_pong(first, by_epoll(first), 50)
        signalling = while_asleep(lambda: signal.pthread_kill(main, signal.SIGALRM))
        ended = C.epoll_wait(epoll.fileno(), EVENTS, 1, DEADLINE * 1000)
        assert (ended, ctypes.get_errno()) == (-1, errno.EINTR), number
        signalling.join()
    assert len(handled) == 10, handled

    # A blocked signal is neither lost nor delivered before the wait that unblocks it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    ping_pong(first, by_epoll(first))
    os.kill(os.getpid(), signal.SIGALRM)
    ping_pong(first, by_epoll(first), 50)
    assert len(handled) == 10, "the blocked signal was delivered"
    nothing = ctypes.create_string_buffer(128)
    ended = C.epoll_pwait(epoll.fileno(), EVENTS, 1, DEADLINE * 1000, nothing)
    assert (ended, ctypes.get_errno()) == (-1, errno.EINTR)
    assert len(handled) == 11, handled
    assert signal.SIGALRM in signal.pthread_sigmask(signal.SIG_BLOCK, []), "not blocked again"
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])

    # A timeout applies to the whole wait.
    ping_pong(first, by_epoll(first), 50)
    assert epoll.poll(0.05) == []

# After a fork, the child waits for connections of its own, and the parent continues.
ping_pong(first, by_epoll(first))
child = os.fork()
if child == 0:
    third = connect()
    ping_pong(third, by_epoll(third))
    os._exit(0)
ping_pong(first, by_epoll(first), 200)
assert os.waitpid(child, 0)[1] == 0
ping_pong(first, by_poll(first), 200)
first.close()
second.close()
assert os.waitpid(echo, 0)[1] == 0
