"""Programs may name a stack by an address family or by a protocol."""

AF_INET_SDP, AF_INET6_SDP = 27, 28
AF_INET_OFFLOAD, AF_INET6_OFFLOAD = 220, 221
AF_INET_DIRECT, AF_INET6_DIRECT = 222, 223
IPPROTO_SDP = 257
V4, V6 = (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")


def made(family, plain, protocol=0):
    fd = C.socket(family, socket.SOCK_STREAM, protocol)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    sock = socket.socket(fileno=fd)
    assert sock.family == plain and sock.type == socket.SOCK_STREAM, sock
    return sock


def address(family, host, port):
    if ":" not in host:
        return struct.pack("=HH4s8x", family, socket.htons(port), socket.inet_aton(host))
    ip = socket.inet_pton(socket.AF_INET6, host)
    return struct.pack("=HHI16sI", family, socket.htons(port), 0, ip, 0)


def call(function, sock, name):
    result = function(sock.fileno(), name, len(name))
    return 0 if result == 0 else ctypes.get_errno()


def connected(family, plain, host, protocol=0, by=lambda sock: sock):
    """Whether a socket of the family is offloaded to a listener of the same family."""
    with made(family, plain, protocol) as listener, made(family, plain, protocol) as client:
        assert call(C.bind, listener, address(family, host, 0)) == 0
        listener.listen()
        client = by(client)
        assert call(C.connect, client, address(family, host, listener.getsockname()[1])) == 0
        offloaded = is_offloaded(client)
        server, peer = listener.accept()
        assert peer == client.getsockname()
        client.sendall(b"x")
        assert server.recv(1) == b"x"
        server.close()
        client.close()
        return offloaded


# A rule permits every protocol of the suite here, and TCP.
if os.environ.get("FAMILIES") is None:
    for family, (plain, host) in ((AF_INET_SDP, V4), (AF_INET6_SDP, V6)):
        if not LOCAL:
            assert connected(family, plain, host), family
            assert connected(plain, plain, host, IPPROTO_SDP)
        # Only streams exist.
        assert C.socket(family, socket.SOCK_DGRAM, 0) == -1
        assert ctypes.get_errno() == errno.EAFNOSUPPORT
    for family, (plain, host) in ((AF_INET_OFFLOAD, V4), (AF_INET6_OFFLOAD, V6)):
        assert connected(family, plain, host), family
    for family, (plain, host) in ((AF_INET_DIRECT, V4), (AF_INET6_DIRECT, V6)):
        assert connected(plain, plain, host)
        assert not connected(family, plain, host), family
        # The name is that of the socket, not of the descriptor.
        assert not connected(family, plain, host, by=lambda sock: sock.dup())
    # Without the library the kernel refuses the families and the protocol.
    bare = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    for arguments in ("27, 1", "220, 1", "222, 1", "2, 1, 257"):
        ask = f"import socket; socket.socket({arguments})"
        refused = subprocess.run([sys.executable, "-c", ask], env=bare, capture_output=True)
        assert b"not supported" in refused.stderr, (arguments, refused)
    # The same program with other rule files: no rules, and a rule for TCP.
    for rules in ("", "use tcp connect * *:*\n"):
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write(rules)
            file.flush()
            env = dict(os.environ, OPS_RULES=file.name, FAMILIES=rules or "none")
            env.pop("OPS_SOFTWARE", None)
            program = open(f"/proc/{os.getpid()}/cmdline", "rb").read().split(b"\0")[2]
            again = subprocess.run([sys.executable, "-c", program], env=env)
            assert again.returncode == 0, rules
elif os.environ["FAMILIES"] == "none":
    # A listener that no other program of this host can reach by an offload protocol.
    bare = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    serve = (
        "import socket, sys\n"
        "one = socket.create_server(('127.0.0.1', 0))\n"
        "print(one.getsockname()[1], flush=True)\n"
        "sys.stdin.read()\n"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", serve],
        env=bare,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    port = int(server.stdout.readline())
    for _ in range(2):
        # The second round finds that the service is not offered.
        for family, protocol in ((AF_INET_SDP, 0), (AF_INET_OFFLOAD, 0), (2, IPPROTO_SDP)):
            with made(family, socket.AF_INET, protocol) as client:
                refused = call(C.connect, client, address(family, "127.0.0.1", port))
                assert refused in (errno.ECONNREFUSED, errno.ENETUNREACH), (family, refused)
        with made(AF_INET_DIRECT, socket.AF_INET) as client:
            assert call(C.connect, client, address(AF_INET_DIRECT, "127.0.0.1", port)) == 0
        with socket.create_connection(("127.0.0.1", port)):
            pass
    server.stdin.close()
    server.wait()
    assert connected(AF_INET_OFFLOAD, *V4) and connected(AF_INET6_OFFLOAD, *V6)
    # SDP that a program names needs no rule and no device.
    assert connected(AF_INET_SDP, *V4) and connected(*V4[:1], *V4, IPPROTO_SDP)
    assert not connected(AF_INET_DIRECT, *V4)
else:
    for family in (AF_INET_SDP, AF_INET_OFFLOAD, AF_INET_DIRECT):
        assert not connected(family, *V4), family
    assert not connected(socket.AF_INET, *V4, IPPROTO_SDP)
