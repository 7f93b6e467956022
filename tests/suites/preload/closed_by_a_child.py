"""A child that shares the memory, as that of a vfork, closes its copy of a watched socket."""

CLONE_VM, CLONE_VFORK = 0x100, 0x4000
EVENTS = select.EPOLLIN | select.EPOLLOUT

listener = socket.create_server(("127.0.0.1", 0))


def connect(client):
    client.connect(listener.getsockname())
    return client, listener.accept()[0]


def close_in_child(number):
    """Runs `close(number)` in a child with the memory of this process and its own descriptors."""
    stack = ctypes.create_string_buffer(1 << 20)
    top = ctypes.c_void_p((ctypes.addressof(stack) + len(stack)) & ~15)
    close = ctypes.cast(C.close, ctypes.c_void_p)
    flags = CLONE_VM | CLONE_VFORK | signal.SIGCHLD
    child = C.clone(close, top, flags, ctypes.c_void_p(number))
    assert child > 0, os.strerror(ctypes.get_errno())
    assert os.waitpid(child, 0) == (child, 0)


# The process has a connection, so it has a table that the child must not write.
connected = connect(socket.socket())

client = socket.socket()
watching = select.epoll()
watching.register(client, EVENTS)
close_in_child(client.fileno())
close_in_child(connected[0].fileno())

_, server = connect(client)
assert watching.poll(DEADLINE) == [(client.fileno(), select.EPOLLOUT)]
server.sendall(b"x")
until(lambda: watching.poll(0) == [(client.fileno(), EVENTS)], "the set does not watch the socket")
assert client.recv(1) == b"x"

connected[1].sendall(b"y")
assert connected[0].recv(1) == b"y"
