"""A listener with `EPOLLONESHOT` reports one event until it is armed again, whichever kinds of peers
have connected. The address 127.0.0.2 leads to the same listener by TCP."""

ONCE = select.EPOLLIN | select.EPOLLONESHOT


def dial(listener, host):
    return socket.create_connection((host, listener.getsockname()[1]), timeout=DEADLINE)


def both(listener):
    """Connects a client of each kind, and waits until the listener is readable."""
    clients = [dial(listener, host) for host in ("127.0.0.1", "127.0.0.2")]
    assert [is_offloaded(client) for client in clients] == [True, False]
    with select.epoll() as level:
        level.register(listener, select.EPOLLIN)
        assert level.poll(DEADLINE)
    return clients


def accept(listener):
    peer, _ = listener.accept()
    peer.close()


def check_one_shot(listener, watching):
    expected = [(listener.fileno(), select.EPOLLIN)]
    watching.poll(0)
    watching.modify(listener, ONCE)
    clients = both(listener)
    for client in clients:
        assert watching.poll(DEADLINE) == expected
        # No event is reported before the listener is armed, though a client waits.
        assert watching.poll(0.2) == []
        accept(listener)
        assert watching.poll(0.2) == []
        client.close()
        watching.modify(listener, ONCE)
    assert watching.poll(0.2) == []


listener = socket.socket()
listener.bind(("0.0.0.0", 0))
early = select.epoll()
# The first event, of a socket that does not listen yet, disarms the registration.
early.register(listener, ONCE)
early.poll(0)
listener.listen()
late = select.epoll()
late.register(listener, ONCE)
for watching in (late, early):
    check_one_shot(listener, watching)

# `modify` changes the registration from one-shot to level-triggered and back.
late.modify(listener, select.EPOLLIN)
clients = both(listener)
assert (listener.fileno(), select.EPOLLIN) in late.poll(DEADLINE)
assert (listener.fileno(), select.EPOLLIN) in late.poll(DEADLINE)
late.modify(listener, ONCE)
assert late.poll(DEADLINE) == [(listener.fileno(), select.EPOLLIN)]
assert late.poll(0.2) == []
for client in clients:
    accept(listener)
    client.close()
late.unregister(listener)
clients = both(listener)
assert late.poll(0.2) == []
for client in clients:
    accept(listener)
    client.close()

# A listener that was shut down keeps its registration when it listens again.
late.register(listener, ONCE)
listener.shutdown(socket.SHUT_RDWR)
assert late.poll(DEADLINE)
listener.listen()
late.modify(listener, ONCE)


def is_reported():
    with dial(listener, "127.0.0.1") as client:
        assert late.poll(DEADLINE) == [(listener.fileno(), select.EPOLLIN)]
        accept(listener)
        late.modify(listener, ONCE)
        return is_offloaded(client)


until(is_reported, "no connection is offloaded any more")
