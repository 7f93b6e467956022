"""Calls whose answers a Unix socket does not give by itself: each is that of TCP, or a difference that
opsrun(1) names."""

PEEK_OFF, ZEROCOPY, ULP, INQ = 42, 60, 31, 36
SOL, TCP = socket.SOL_SOCKET, socket.IPPROTO_TCP


def answer(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


def pair(host):
    with socket.create_server((host, 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        assert is_offloaded(client) == (host == "127.0.0.1")
        return client, server


def after_a_non_blocking_connect(host):
    """The first call returns the result of the connect, the second the state."""
    with socket.create_server((host, 0)) as listener, socket.socket() as client:
        client.setblocking(False)
        first = client.connect_ex(listener.getsockname())
        server, _ = listener.accept()
        select.select([], [client], [], DEADLINE)
        again = [client.connect_ex(listener.getsockname()) for _ in range(3)]
        server.close()
        return first, again


def after_a_blocking_connect(host):
    client, server = pair(host)
    with client, server:
        return [end.connect_ex((host, 1)) for end in (client, server)]


def ended(host, second):
    """Both directions have ended: the peer by a close, this end by a shutdown. Then `second` and
    getpeername fail."""
    client, server = pair(host)
    with client:
        server.close()
        until(lambda: select.select([client], [], [], 0)[0], "no end")
        results = [answer(client.shutdown, socket.SHUT_WR)]
        # TCP notices the peer's answer a moment later.
        until(lambda: answer(client.shutdown, second) == "ENOTCONN", "still connected")
        return results + [answer(client.getpeername)]


def ended_at_once(host):
    """This end ends both directions, and the peer follows."""
    client, server = pair(host)
    with client:
        results = [answer(client.shutdown, socket.SHUT_RDWR)]
        server.close()
        polled = select.poll()
        polled.register(client, 0)
        until(lambda: polled.poll(0), "no end")
        is_over = lambda: answer(client.getpeername) == "ENOTCONN"
        if host != "127.0.0.1":
            until(is_over, "still connected")
        return results + [is_over(), answer(client.shutdown, socket.SHUT_RDWR)]


def broken_pipe(host):
    """The first write after the peer's close succeeds, and the next raises SIGPIPE."""
    client, server = pair(host)
    raised = []
    before = signal.signal(signal.SIGPIPE, lambda *_: raised.append(1))
    with client:
        server.close()
        until(lambda: select.select([client], [], [], 0)[0], "no end")
        results = [os.write(client.fileno(), b"x"), len(raised)]
        polled = select.poll()
        polled.register(client, 0)
        until(lambda: polled.poll(0), "no reset")
        results += [answer(os.write, client.fileno(), b"x"), len(raised)]
    signal.signal(signal.SIGPIPE, before)
    return results


def low_mark(host):
    client, server = pair(host)
    with client, server:
        server.setsockopt(SOL, socket.SO_RCVLOWAT, 10)
        client.send(b"12345")
        until(lambda: is_there(server, 5), "no bytes")
        polled, epoll = select.poll(), select.epoll()
        polled.register(server, select.POLLIN)
        epoll.register(server, select.EPOLLIN)
        found = [bool(wait.poll(0)) for wait in (polled, epoll)]
        found.append(bool(select.select([server], [], [], 0)[0]))
        set_timeout(server)
        # A receive that waits does so for all ten bytes, or until its timeout.
        return found, answer(server.recv, 10)


def set_timeout(sock):
    """Bounds the kernel's wait; a timeout of the interpreter would poll first."""
    sock.setsockopt(SOL, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50000))


def is_there(sock, count):
    return len(sock.recv(count, socket.MSG_PEEK | socket.MSG_DONTWAIT)) == count


def option(level, name, value):
    def result(host):
        client, server = pair(host)
        with client, server:
            return answer(client.setsockopt, level, name, value)

    return result


def peek_offset(host):
    client, server = pair(host)
    with client, server:
        results = [answer(server.setsockopt, SOL, PEEK_OFF, 2)]
        client.send(b"12345")
        until(lambda: select.select([server], [], [], 0)[0], "no bytes")
        return results + [server.recv(2, socket.MSG_PEEK) for _ in range(2)] + [server.recv(9)]


def peek_waits(host):
    client, server = pair(host)
    with client, server:
        client.send(b"12345")
        until(lambda: is_there(server, 5), "no bytes")
        later = while_asleep(lambda: client.send(b"67890"))
        peeked = server.recv(10, socket.MSG_PEEK | socket.MSG_WAITALL)
        later.join()
        return peeked


def bind(to):
    with socket.socket() as other:
        return answer(other.bind, to)


def port_of_client(host):
    client, server = pair(host)
    with client, server:
        return bind(client.getsockname())


def port_of_bound_client(host):
    with socket.create_server((host, 0)) as listener, socket.socket() as client:
        client.bind((host, 0))
        client.connect(listener.getsockname())
        return bind(client.getsockname())


def port_of_service(host):
    """The service has closed its listener; its connections are open."""
    client, server = pair(host)
    with client, server:
        return bind(server.getsockname())


SAME = [
    after_a_non_blocking_connect,
    after_a_blocking_connect,
    broken_pipe,
    peek_offset,
]
for how in (socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR):
    SAME.append(lambda host, how=how: ended(host, how))
for calls in SAME:
    here, there = calls("127.0.0.1"), calls("127.0.0.2")
    assert here == there, (calls, here, there)

# The differences that opsrun(1) names: the calls, and the answers within the host and of TCP. `None`
# is any other answer.
DIFFERENT = [
    (low_mark, ([True] * 3, b"12345"), ([False] * 3, b"12345")),
    (peek_waits, b"12345", b"1234567890"),
    (ended_at_once, [None, False, None], [None, True, "ENOTCONN"]),
    (option(SOL, ZEROCOPY, 1), "ENOPROTOOPT", None),
    (option(TCP, ULP, b"tls"), "ENOPROTOOPT", None),
    (option(TCP, INQ, 1), "ENOPROTOOPT", None),
    (port_of_client, None, "EADDRINUSE"),
    (port_of_bound_client, None, "EADDRINUSE"),
    (port_of_service, None, "EADDRINUSE"),
]
unlike = []
for calls, local, tcp in DIFFERENT:
    here, there = calls("127.0.0.1"), calls("127.0.0.2")
    are_named = (here == local or local is None) and (there == tcp or tcp is None) and here != there
    if not are_named:
        unlike.append((calls, here, there))
assert not unlike, unlike
