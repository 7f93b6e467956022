"""Programs may name the address families of OFED's kernel SDP. Their sockets are those of TCP."""

AF_INET_SDP, AF_INET6_SDP = 27, 28
ENDS = ((AF_INET_SDP, socket.AF_INET, "127.0.0.1"), (AF_INET6_SDP, socket.AF_INET6, "::1"))


def made(family, plain):
    fd = C.socket(family, socket.SOCK_STREAM, 0)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    sock = socket.socket(fileno=fd)
    assert sock.family == plain and sock.type == socket.SOCK_STREAM, sock
    return sock


def address(family, host, port):
    if family == AF_INET_SDP:
        return struct.pack("=HH4s8x", family, socket.htons(port), socket.inet_aton(host))
    ip = socket.inet_pton(socket.AF_INET6, host)
    return struct.pack("=HHI16sI", family, socket.htons(port), 0, ip, 0)


def call(function, sock, name):
    result = function(sock.fileno(), name, len(name))
    assert result == 0, os.strerror(ctypes.get_errno())


for family, plain, host in ENDS:
    with made(family, plain) as listener, made(family, plain) as client:
        call(C.bind, listener, address(family, host, 0))
        listener.listen()
        call(C.connect, client, address(family, host, listener.getsockname()[1]))
        assert is_offloaded(client)
        server, peer = listener.accept()
        assert peer == client.getsockname()
        client.sendall(b"x")
        assert server.recv(1) == b"x"
        server.close()
    # Only streams exist.
    assert C.socket(family, socket.SOCK_DGRAM, 0) == -1
    assert ctypes.get_errno() == errno.EAFNOSUPPORT
# Without the library the kernel refuses the families.
plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
ask = "import socket; socket.socket(27, socket.SOCK_STREAM)"
refused = subprocess.run([sys.executable, "-c", ask], env=plain, capture_output=True, text=True)
assert "Address family not supported" in refused.stderr, refused
