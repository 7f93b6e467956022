"""A worker that accepts without waiting does not wait for a listening process that is stopped, and
serves the client when the process continues."""

parent = os.getpid()
listener = socket.create_server(("127.0.0.1", 0))


def accept():
    try:
        return listener.accept()[0]
    except BlockingIOError:
        return None


def worker():
    listener.setblocking(False)
    watching = select.poll()
    watching.register(listener, select.POLLIN)
    assert watching.poll(DEADLINE * 1000)
    os.kill(parent, signal.SIGSTOP)
    until(lambda: state(parent) == "T", "the process runs")
    try:
        peer = accept() or accept()
    finally:
        os.kill(parent, signal.SIGCONT)
    while peer is None:
        assert watching.poll(DEADLINE * 1000)
        peer = accept()
    peer.setblocking(True)
    peer.sendall(b"served")
    peer.close()
    assert accept() is None


def client():
    with socket.create_connection(listener.getsockname(), timeout=DEADLINE) as sock:
        assert is_offloaded(sock) and sock.recv(6) == b"served"


serving = forked(worker)
ended(forked(client), serving)
