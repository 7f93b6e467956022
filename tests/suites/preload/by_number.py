"""Programs that make system calls by number: their connections are made, accepted and watched like
those of programs that call the C library's functions."""

LISTEN, CONNECT, ACCEPT, ACCEPT4, CLOSE, DUP2 = 50, 42, 43, 288, 3, 33
EPOLL_CTL, SENDMSG = 233, 46


def call(number, *words):
    result = C.syscall(number, *words, *(ctypes.c_long(0) for _ in range(6 - len(words))))
    assert result >= 0, (number, errno.errorcode[ctypes.get_errno()])
    return result


def listening(address):
    sock = socket.socket()
    sock.bind((address, 0))
    call(LISTEN, sock.fileno(), 5)
    return sock


def dialled(listener):
    host, port = listener.getsockname()
    sock = socket.socket()
    call(CONNECT, sock.fileno(), struct.pack("=H", socket.AF_INET) + struct.pack("!H", port)
        + socket.inet_aton(host) + bytes(8), 16)
    return sock


def watching(sock):
    """An epoll set that watches `sock`, made by system calls by number."""
    poll = select.epoll()
    event = struct.pack("=IQ", select.EPOLLIN, sock.fileno())
    call(EPOLL_CTL, poll.fileno(), 1, sock.fileno(), event)
    return poll


for address in ("127.0.0.1", "127.0.0.2"):
    for accept in (ACCEPT, ACCEPT4):
        listener = listening(address)
        events = watching(listener)
        client = dialled(listener)
        assert events.poll(DEADLINE)[0][0] == listener.fileno()
        server = socket.socket(fileno=call(accept, listener.fileno(), None, None))
        for sock in client, server:
            assert is_offloaded(sock) == (address == "127.0.0.1"), (address, sock)
        client.sendall(b"said")
        assert server.recv(9) == b"said"
        # `dup2` replaces the connection by a pipe, which closes the connection.
        out, into = os.pipe()
        call(DUP2, out, client.fileno())
        assert server.recv(1) == b""
        os.write(into, b"piped")
        assert os.read(client.detach(), 9) == b"piped"
        call(CLOSE, listener.detach())
        server.close()

# Another process can use a descriptor that is passed to it.
listener = listening("127.0.0.1")
client = dialled(listener)
server, _ = listener.accept()
ours, theirs = socket.socketpair()
child = os.fork()
if child == 0:
    ours.close()
    client.close()
    server.close()
    _, (passed,), _, _ = socket.recv_fds(theirs, 1, 1)
    socket.socket(fileno=passed).sendall(b"passed")
    os._exit(0)
byte, part = ctypes.create_string_buffer(b"x", 1), (ctypes.c_void_p * 2)()
part[0], part[1] = ctypes.addressof(byte), 1
control = ctypes.create_string_buffer(
    struct.pack("=QiiiI", 20, socket.SOL_SOCKET, socket.SCM_RIGHTS, client.fileno(), 0), 24
)
header = (ctypes.c_void_p * 7)(None, None, ctypes.addressof(part), 1, ctypes.addressof(control), 24)
call(SENDMSG, ours.fileno(), header, 0)
client.close()
server.settimeout(DEADLINE)
assert server.recv(9) == b"passed"
assert os.waitpid(child, 0)[1] == 0
