"""A program that closes all descriptors from a number on, as daemons do, closes no descriptor of the
library: connections with lower numbers continue, and new connections are offloaded."""

WAYS = {
    "closefrom": lambda: C.closefrom(700),
    "close_range": lambda: C.close_range(700, 0xFFFFFFFF, 0),
    "close_range to the limit": lambda: C.close_range(700, resource.getrlimit(7)[0], 0),
    "syscall": lambda: C.syscall(436, 700, 0xFFFFFFFF, 0),
}


def connected():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        client.settimeout(DEADLINE)
        return client, listener.accept()[0]


# The library uses none of the program's numbers: accept returns the lowest free number.
with socket.create_server(("127.0.0.1", 0)) as listener:
    with socket.create_connection(listener.getsockname()):
        lowest = os.open("/dev/null", os.O_RDONLY)
        os.close(lowest)
        peer, _ = listener.accept()
        assert is_offloaded(peer) and peer.fileno() == lowest, (peer, lowest)
        peer.close()

kept = connected()
# The kernel closes nothing for unknown flags.
kept[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77)
assert C.close_range(kept[0].fileno(), 0xFFFFFFFF, 8) == -1
assert kept[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 77
for name, close_all in WAYS.items():
    high = os.dup2(kept[0].fileno(), 701)
    close_all()
    assert not os.path.exists(f"/proc/self/fd/{high}"), name
    for client, server in (kept, connected()):
        assert is_offloaded(client) and is_offloaded(server), name
        client.sendall(b"hello")
        assert server.recv(5) == b"hello", name
        server.sendall(b"there")
        assert client.recv(5) == b"there", name
    connected()[0].close()
