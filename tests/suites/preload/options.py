"""Every option with every kind of value: an offloaded socket returns the results of a TCP socket.

The interpreter names most options; numbers are those of <asm-generic/socket.h> and <linux/tcp.h>.
"""

SO_PEEK_OFF = 42
UNSUPPORTED = errno.errorcode[errno.EOPNOTSUPP]
LEVELS = {
    "SO_": socket.SOL_SOCKET,
    "TCP_": socket.IPPROTO_TCP,
    "IP_": socket.IPPROTO_IP,
    "IPV6_": socket.IPPROTO_IPV6,
}
OPTIONS = {
    name: (level, getattr(socket, name))
    for prefix, level in LEVELS.items()
    for name in dir(socket)
    if name.startswith(prefix)
}
OPTIONS |= {
    "SO_NO_CHECK": (socket.SOL_SOCKET, 11),
    "SO_LINGER": (socket.SOL_SOCKET, 13),
    "SO_BSDCOMPAT": (socket.SOL_SOCKET, 14),
    "SO_ATTACH_FILTER": (socket.SOL_SOCKET, 26),
    "SO_TIMESTAMP": (socket.SOL_SOCKET, 29),
    "SO_SNDBUFFORCE": (socket.SOL_SOCKET, 32),
    "SO_RCVBUFFORCE": (socket.SOL_SOCKET, 33),
    "SO_TIMESTAMPNS": (socket.SOL_SOCKET, 35),
    "SO_PEEK_OFF": (socket.SOL_SOCKET, 42),
    "SO_NOFCS": (socket.SOL_SOCKET, 43),
    "SO_LOCK_FILTER": (socket.SOL_SOCKET, 44),
    "SO_SELECT_ERR_QUEUE": (socket.SOL_SOCKET, 45),
    "SO_BUSY_POLL": (socket.SOL_SOCKET, 46),
    "SO_MAX_PACING_RATE": (socket.SOL_SOCKET, 47),
    "SO_COOKIE": (socket.SOL_SOCKET, 57),
    "SO_PEERPIDFD": (socket.SOL_SOCKET, 77),
    "SO_ZEROCOPY": (socket.SOL_SOCKET, 60),
    "SO_TXTIME": (socket.SOL_SOCKET, 61),
    "TCP_MD5SIG": (socket.IPPROTO_TCP, 14),
    "TCP_REPAIR": (socket.IPPROTO_TCP, 19),
    "TCP_FASTOPEN_CONNECT": (socket.IPPROTO_TCP, 30),
    "TCP_FASTOPEN_NO_COOKIE": (socket.IPPROTO_TCP, 34),
    "TCP_ULP": (socket.IPPROTO_TCP, 31),
    "TCP_INQ": (socket.IPPROTO_TCP, 36),
    "TCP_TX_DELAY": (socket.IPPROTO_TCP, 37),
    "no option of a socket": (socket.SOL_SOCKET, 999),
    "no option of TCP": (socket.IPPROTO_TCP, 999),
    "no level": (77, 1),
}

# The differences, with reasons.
DIFFERS = {
    "SO_ATTACH_FILTER": "refused: no segment passes that it could filter",
    "SO_COOKIE": "a number of its own for every socket",
    "SO_INCOMING_CPU": "no segment arrives at one",
    "SO_SNDBUF": "the kernel grows it with the connection",
    "SO_ZEROCOPY": "refused, so that programs copy",
    "TCP_INQ": "refused: a receive does not return how much remains",
    "TCP_INFO": "figures of TCP's own machinery",
    "TCP_MAXSEG": "there are no segments",
    "TCP_MD5SIG": "refused: no segment could carry the signature",
    "TCP_REPAIR": "refused: there is no TCP state to take over",
    "TCP_ULP": "refused: the protocols above TCP that the kernel knows need its TCP",
    "TCP_WINDOW_CLAMP": "the window is the protocol's",
}

if LOCAL:
    DIFFERS |= {
        "SO_RCVBUF": "it is not used, and begins as that of every Unix socket",
        "SO_RCVLOWAT": "the kernel bounds TCP's by the buffer",
    }
else:
    DIFFERS |= {"SO_PEEK_OFF": "not supported, as by TCP of older kernels"}

VALUES = [0, 1, 7, 60, 4096, 300000, -1, b"\1", b"x" * 20]


def connected(host):
    with socket.create_server((host, 0)) as listener:
        dialled = socket.create_connection(listener.getsockname())
        return dialled, listener.accept()[0]


def answer(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


def answers(host, option):
    """The result of each call for an option."""
    sock, peer = connected(host)
    with sock, peer:
        answers = {f"get {size}": answer(sock.getsockopt, *option, size) for size in (4, 1, 64)}
        for value in VALUES:
            answers[f"set {value!r}"] = answer(sock.setsockopt, *option, value)
            answers[f"get after {value!r}"] = answer(sock.getsockopt, *option, 4)
        return answers


assert DIFFERS.keys() <= OPTIONS.keys(), DIFFERS.keys() - OPTIONS.keys()
unlike = {}
for name, option in sorted(OPTIONS.items()):
    offloaded, tcp = answers("127.0.0.1", option), answers("127.0.0.2", option)
    different = {key: (offloaded[key], tcp[key]) for key in tcp if offloaded[key] != tcp[key]}
    if name not in DIFFERS:
        if different:
            unlike[name] = different
    elif DIFFERS[name].startswith("refused"):
        assert offloaded["set 1"] == offloaded["get 4"] == "ENOPROTOOPT", (name, offloaded)
assert not unlike, f"(offloaded, TCP): {unlike}"
assert len(OPTIONS) > 80, len(OPTIONS)

SO_PEERNAME = 28
for host in ("127.0.0.1", "127.0.0.2"):
    sock, peer = connected(host)
    with sock, peer:
        port = peer.getsockname()[1]
        name = struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton(host)
        assert sock.getsockopt(socket.SOL_SOCKET, SO_PEERNAME, 16) == name + bytes(8), host
        assert sock.getsockopt(socket.SOL_SOCKET, SO_PEERNAME, 4) == name[:4], host
        assert answer(sock.getsockopt, socket.SOL_SOCKET, SO_PEERNAME, 17) == "EINVAL", host

# A socket with this option before it connects stays on TCP, where the option is in force.
with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as sock:
    peeks = answer(sock.setsockopt, socket.SOL_SOCKET, SO_PEEK_OFF, 0) != UNSUPPORTED
    sock.connect(listener.getsockname())
    assert is_offloaded(sock) != peeks
if not LOCAL:
    sock, peer = connected("127.0.0.1")
    with sock, peer:
        assert answer(sock.setsockopt, socket.SOL_SOCKET, SO_PEEK_OFF, 0) == UNSUPPORTED
