"""Sockets that are in epoll sets before they connect, as in nginx, are in the sets afterwards."""

EVENTS = select.EPOLLIN | select.EPOLLOUT
SETS = 70

listener = socket.create_server(("127.0.0.1", 0))
client = socket.socket()
sets = [select.epoll() for _ in range(SETS)]
for number, watching in enumerate(sets):
    watching.register(client, EVENTS | (select.EPOLLET if number % 2 else 0))
    shown = watching.poll(0)
    assert shown == [(client.fileno(), select.EPOLLOUT | select.EPOLLHUP)], shown

# A set that was closed, and whose number refers to another file.
sets.pop(3).close()
other = socket.socketpair()

client.connect(listener.getsockname())
server, _ = listener.accept()
for watching in sets:
    shown = watching.poll(DEADLINE)
    assert shown == [(client.fileno(), select.EPOLLOUT)], shown

server.sendall(b"x")
assert select.select([client], [], [], DEADLINE)[0], "nothing arrives"
for watching in sets:
    shown = watching.poll(DEADLINE)
    assert shown == [(client.fileno(), EVENTS)], shown

assert client.recv(1) == b"x"
for watching in sets:
    watching.unregister(client)
    assert not watching.poll(0)
