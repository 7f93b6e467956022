"""After a listener is closed, the next listener can use its port at once, as iperf3 expects."""

ROUNDS = 300

address = socket.create_server(("127.0.0.1", 0)).getsockname()
for number in range(ROUNDS):
    socket.create_server(address).close()
    with socket.create_server(address) as listener:
        client = socket.create_connection(address)
        server, _ = listener.accept()
    for end in (client, server):
        # Connections that stay on TCP are sockets of the kernel, which this table lists.
        inode = os.fstat(end.fileno()).st_ino
        assert f" {inode} " not in open("/proc/net/tcp").read(), f"round {number}: on TCP"
    client.sendall(b"ping")
    assert server.recv(4) == b"ping"
    client.close()
    server.close()
