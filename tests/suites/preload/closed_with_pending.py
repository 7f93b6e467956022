"""A listener that is closed resets the connections that wait to be accepted. They are accepted in the
order of their connects."""


def outcome(work):
    try:
        return work()
    except OSError as error:
        return errno.errorcode[error.errno]


def closed(address, sent):
    listener = socket.create_server((address, 0))
    clients = [socket.create_connection(listener.getsockname()) for _ in range(3)]
    for client in clients:
        client.settimeout(DEADLINE)
        if sent:
            client.sendall(sent)
    # The last connection is queued before the listener is closed.
    assert select.select([listener], [], [], DEADLINE)[0]
    let_others_run()
    listener.close()
    for client in clients:
        assert is_offloaded(client) == (address == "127.0.0.1")
        assert outcome(lambda: client.recv(9)) == "ECONNRESET", (address, sent)
        for _ in range(2):
            assert outcome(lambda: client.send(b"x")) == "EPIPE", (address, sent)
        assert outcome(lambda: client.recv(9)) == b""


def in_order(address, count=12):
    """Connects without waiting for the result, and lets the kernel order the connections."""
    listener = socket.create_server((address, 0), backlog=count)
    clients = [socket.create_connection(listener.getsockname()) for _ in range(count)]
    accepted = [listener.accept()[0] for _ in range(count)]
    assert [it.getpeername() for it in accepted] == [it.getsockname() for it in clients]


for address in ("127.0.0.1", "127.0.0.2"):
    closed(address, b"")
    closed(address, b"unread")
    in_order(address)
