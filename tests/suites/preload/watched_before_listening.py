"""Sockets that are in epoll sets before they listen, or that listen again, report offloaded clients."""

SETS = 3


def play(listener, sets):
    client = socket.create_connection(listener.getsockname(), timeout=DEADLINE)
    for watching in sets:
        shown = watching.poll(DEADLINE)
        assert (listener.fileno(), select.EPOLLIN) in shown, shown
    server = listener.accept()[0]
    client.sendall(b"x")
    assert server.recv(1) == b"x"
    offloaded = is_offloaded(client)
    client.close()
    server.close()
    return offloaded


listener = socket.socket()
listener.bind(("127.0.0.1", 0))
sets = [select.epoll() for _ in range(SETS)]
for number, watching in enumerate(sets):
    watching.register(listener, select.EPOLLIN | (select.EPOLLET if number == 1 else 0))
listener.listen()
# The first event is that of an idle socket that does not listen yet.
for watching in sets:
    watching.poll(0)
assert play(listener, sets)
for watching in sets:
    assert not watching.poll(0)

# The sets keep a listener that was shut down.
listener.shutdown(socket.SHUT_RDWR)
listener.listen()
for watching in sets:
    watching.poll(0)


def is_offloaded_again():
    return play(listener, sets)


until(is_offloaded_again, "no connection is offloaded any more")
listener.close()
for watching in sets:
    assert not watching.poll(0)
