"""Connections within the host between link-local addresses, which have a scope."""

OWN = "fe80::1"

add_loopback_address(OWN, 64)
scope = socket.if_nametoindex("lo")

for address in ("::", OWN):
    listener = socket.socket(socket.AF_INET6)
    listener.settimeout(DEADLINE)
    listener.bind((address, 0, 0, scope if address == OWN else 0))
    listener.listen()
    client = socket.socket(socket.AF_INET6)
    client.settimeout(DEADLINE)
    client.connect((OWN, listener.getsockname()[1], 0, scope))
    server, peer = listener.accept()
    # Binding to a link-local address binds to its device too, and such listeners stay on TCP.
    assert is_offloaded(client) == is_offloaded(server) == (address == "::"), address
    assert peer == client.getsockname() == server.getpeername()
    assert server.getsockname() == client.getpeername()
    for name in (peer, server.getsockname()):
        assert (name[0], name[3]) == (OWN, scope), name
    client.sendall(b"ping")
    assert server.recv(4) == b"ping"
    for one in (client, server, listener):
        one.close()
