"""A thread waits on an epoll set for a socket that another thread connects, and uses the socket as soon
as the set reports it. The socket is in many sets, so that updating all sets takes a while."""

SETS = 800
ROUNDS = 20
OUT, HUNG_UP = 4, 0x10


def use_when_ready(watching, fd, sent):
    """Writes when the descriptor is ready, by calls of the C library."""
    event = ctypes.create_string_buffer(12)
    while True:
        C.epoll_wait(watching, event, 1, -1)
        if not struct.unpack("=I", event.raw[:4])[0] & HUNG_UP:
            sent.append(C.send(fd, b"hello", ctypes.c_size_t(5), 0))
            return


for _ in range(ROUNDS):
    listener = socket.create_server(("127.0.0.1", 0))
    sets = [select.epoll() for _ in range(SETS)]
    sock = socket.socket()
    # Edge-triggered, because an unconnected socket is ready, and is reported once.
    for one in sets:
        one.register(sock, OUT | select.EPOLLET)
    one = sets[0]
    assert one.poll(0)
    sent = []
    thread = threading.Thread(target=use_when_ready, args=(one.fileno(), sock.fileno(), sent))
    thread.start()
    sock.connect(listener.getsockname())
    assert is_offloaded(sock)
    thread.join()
    peer = listener.accept()[0]
    peer.settimeout(DEADLINE)
    assert sent == [5], sent
    assert peer.recv(5, socket.MSG_WAITALL) == b"hello"
    for each in (*sets, sock, peer, listener):
        each.close()
