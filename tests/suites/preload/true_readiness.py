"""A socket that is reported as ready is ready: there are no false wake-ups."""

ROUNDS = 3000
BYTES = 16

listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()


def answer():
    while data := server.recv(4096):
        for byte in data:
            server.send(bytes([byte]))


threading.Thread(target=answer, daemon=True).start()
client.setblocking(False)
epoll = select.epoll()
epoll.register(client, select.EPOLLIN)
false = 0
for number in range(ROUNDS):
    client.send(b"x" * BYTES)
    arrived = 0
    while arrived < BYTES:
        epoll.poll()
        try:
            arrived += len(client.recv(4096))
        except BlockingIOError:
            false += 1
assert false == 0, f"{false} false wake-ups in {ROUNDS} rounds"

EPOLL_CTL_DEL = 2

# A listener is never writable, and is readable when a client has connected.
for mode in (0, select.EPOLLET):
    with socket.create_server(("127.0.0.1", 0)) as listener, select.epoll() as listening:
        listening.register(listener, select.EPOLLIN | select.EPOLLOUT | mode)
        assert listening.poll(0.1) == [], mode
        with socket.create_connection(listener.getsockname()):
            assert listening.poll(DEADLINE) == [(listener.fileno(), select.EPOLLIN)], mode
        # The event argument of EPOLL_CTL_DEL is not read.
        nowhere = ctypes.c_void_p(1)
        assert C.epoll_ctl(listening.fileno(), EPOLL_CTL_DEL, listener.fileno(), nowhere) == 0
        assert listening.poll(0) == [], mode
