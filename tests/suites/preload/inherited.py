"""Accepted sockets have the options that were set on the listening socket, before or after listen."""

TCP = socket.IPPROTO_TCP
SECONDS = struct.pack("=qq", 0, 300_000)
BEFORE = {
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
    (socket.SOL_SOCKET, socket.SO_RCVBUF): 40_000,
    (socket.SOL_SOCKET, socket.SO_SNDBUF): 50_000,
    (socket.SOL_SOCKET, socket.SO_LINGER): struct.pack("=ii", 1, 3),
    (socket.SOL_SOCKET, socket.SO_OOBINLINE): 1,
    (socket.SOL_SOCKET, socket.SO_PRIORITY): 3,
    (socket.SOL_SOCKET, socket.SO_REUSEADDR): 1,
    (TCP, socket.TCP_NODELAY): 1,
    (TCP, socket.TCP_KEEPIDLE): 77,
    (TCP, socket.TCP_KEEPINTVL): 7,
    (TCP, socket.TCP_KEEPCNT): 3,
    (TCP, socket.TCP_USER_TIMEOUT): 9_000,
    (TCP, socket.TCP_LINGER2): 11,
    (TCP, socket.TCP_CONGESTION): b"reno",
    (socket.IPPROTO_IP, socket.IP_TOS): 16,
    (socket.IPPROTO_IP, socket.IP_TTL): 33,
}
AFTER = {
    (socket.SOL_SOCKET, socket.SO_RCVTIMEO): SECONDS,
    (socket.SOL_SOCKET, socket.SO_SNDTIMEO): SECONDS,
    (TCP, socket.TCP_KEEPCNT): 4,
    (TCP, socket.TCP_CORK): 1,
}
# Options that are not set, so they have the defaults of a new socket.
DEFAULT = [(TCP, socket.TCP_SYNCNT), (TCP, 25), (socket.SOL_SOCKET, socket.SO_RCVLOWAT)]


def accepted(host):
    with socket.socket() as listener:
        for (level, name), value in BEFORE.items():
            listener.setsockopt(level, name, value)
        listener.bind((host, 0))
        listener.listen()
        for (level, name), value in AFTER.items():
            listener.setsockopt(level, name, value)
        client = socket.create_connection(listener.getsockname())
        return client, listener.accept()[0]


def option_values(sock):
    names = [*BEFORE, *AFTER, *DEFAULT]
    return {(level, name): sock.getsockopt(level, name, 16) for level, name in names}


ours, tcp = accepted("127.0.0.1"), accepted("127.0.0.2")
assert is_offloaded(ours[1]) and not is_offloaded(tcp[1])
of_ours, of_tcp = option_values(ours[1]), option_values(tcp[1])
unlike = {name: (value, of_tcp[name]) for name, value in of_ours.items()}
unlike = {name: pair for name, pair in unlike.items() if pair[0] != pair[1]}
assert not unlike, unlike

# The options have an effect, too.
for client, sock in (ours, tcp):
    begun = time.monotonic()
    try:
        sock.recv(1)
        raise AssertionError("nothing was sent")
    except BlockingIOError:
        assert time.monotonic() - begun > 0.2
    limit = struct.pack("=qq", DEADLINE, 0)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    client.send(b"!", socket.MSG_OOB)
    assert sock.recv(1, socket.MSG_WAITALL) == b"!"
    client.close()
    sock.close()
