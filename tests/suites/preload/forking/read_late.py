"""A worker reads the end of a connection long after the peer's process has ended. The reader sees no
error, because the peer has ended its stream first."""


def serve(listener, go, leave):
    peer, _ = listener.accept()
    assert receive(peer, 3) == b"all"
    peer.sendall(b"yes")
    os.read(go, 1)
    leave(peer)


def read_end(peer):
    assert peer.recv(1) == b""
    # Neither an error nor the end of the other direction is shown.
    poll = select.poll()
    poll.register(peer, select.POLLIN)
    assert poll.poll(DEADLINE * 1000)[0][1] == select.POLLIN
    assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


def read_and_close(peer):
    read_end(peer)
    peer.close()


def read_and_shut_down(peer):
    read_end(peer)
    peer.shutdown(socket.SHUT_WR)
    assert peer.recv(1) == b""
    peer.close()


def read_and_write(peer):
    """A write fails, because the peer's process has ended."""
    read_end(peer)
    until(lambda: not is_sent(peer), "writes to nobody")
    peer.close()


def is_sent(peer):
    try:
        peer.sendall(b"?")
        return True
    except (BrokenPipeError, ConnectionResetError):
        return False


def dial(address):
    client = socket.create_connection(address)
    client.sendall(b"all")
    assert receive(client, 3) == b"yes"


def play(way, is_worker):
    """The connection belongs to the listening process, or to a worker for which that process carries it."""
    listener = socket.create_server(("127.0.0.1", 0))
    go, goes = os.pipe()
    client = os.fork()
    if client == 0:
        dial(listener.getsockname())
        os._exit(0)
    if is_worker:
        worker = forked(serve, listener, go, way)
    waiter = threading.Thread(target=lambda: (ended(client), time.sleep(0.1), os.write(goes, b".")))
    waiter.start()
    if is_worker:
        ended(worker)
    else:
        serve(listener, go, way)
    waiter.join()
    listener.close()
    os.close(go)
    os.close(goes)


for is_worker in (True, False):
    for way in (read_and_close, read_and_shut_down, read_and_write):
        play(way, is_worker)
