"""Receives that poll before they sleep, and what follows them: other waits, forks, other threads."""


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

# The end of the stream, and a full length that arrives in pieces.
near.shutdown(socket.SHUT_WR)
assert near.recv(1) == b""
echoing.join()
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
