"""Servers that bind, fork and listen afterwards: each process that accepts serves clients."""


def bound():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    return listener


def greeting(address):
    with socket.create_connection(address, timeout=DEADLINE) as client:
        return client.recv(100), is_offloaded(client)


def greet(listener, word):
    peer, _ = listener.accept()
    peer.sendall(word)
    peer.close()


# The library has entries in its table, or has none, when the program forks.
for has_entries in (False, True):
    # Only the parent listens, and only the child accepts.
    listener = bound()
    listening, ready = os.pipe()

    def worker():
        os.read(listening, 1)
        watched = select.poll()
        watched.register(listener, select.POLLIN)
        watched.poll()
        greet(listener, b"child")

    child = forked(worker)
    listener.listen()
    os.write(ready, b".")
    assert greeting(listener.getsockname())[0] == b"child"
    ended(child)
    listener.close()

    # Each worker listens. The first one does not accept.
    listener = bound()
    listening, ready = os.pipe()
    stop, stopped = os.pipe()

    def idle_worker():
        listener.listen()
        os.write(ready, b".")
        os.read(stop, 1)

    idle = forked(idle_worker)
    os.read(listening, 1)
    busy = forked(lambda: (listener.listen(), greet(listener, b"busy")))
    assert greeting(listener.getsockname())[0] == b"busy"
    ended(busy)
    os.write(stopped, b".")
    ended(idle)
    listener.close()

    # A socket that is made after the fork is offloaded.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = forked(greet, listener, b"later")
        assert greeting(listener.getsockname()) == (b"later", True)
        ended(child)
