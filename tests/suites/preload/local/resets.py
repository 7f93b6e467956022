"""A close with SO_LINGER of no time resets a TCP connection. A socket that has the option before it is
connected, or whose listener has the option, stays on TCP."""

RESETS = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
WAITS = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 5))


def is_reset(end):
    try:
        return end.recv(1) != b"" and is_reset(end)
    except ConnectionResetError:
        return True


def connected(listener, *options):
    client = socket.socket()
    for option in options:
        client.setsockopt(*option)
    client.connect(listener.getsockname())
    return client, listener.accept()[0]


listener = socket.create_server(("127.0.0.1", 0))
client, server = connected(listener, RESETS)
assert not is_offloaded(client)
client.send(b"x")
client.close()
assert is_reset(server)

# Other sockets of a program that has used the option are still offloaded.
client, server = connected(listener)
assert is_offloaded(client) and is_offloaded(server)
client, server = connected(listener, RESETS, WAITS)
assert is_offloaded(client) and is_offloaded(server)

# A close with unread bytes resets the connection over every transport.
client.send(b"unread")
server.close()
assert is_reset(client)

with socket.socket() as aborting:
    aborting.bind(("127.0.0.1", 0))
    aborting.setsockopt(*RESETS)
    aborting.listen()
    client, server = connected(aborting)
    assert not is_offloaded(client)
    server.close()
    assert is_reset(client)
