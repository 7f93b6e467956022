"""A program with other clocks than the kernel's connects and transfers."""

listener = socket.create_server(("127.0.0.1", 0))
for _ in range(20):
    client = socket.socket()
    client.connect(listener.getsockname())
    server, _ = listener.accept()
    assert is_offloaded(client) and is_offloaded(server)
    client.sendall(bytes(100000))
    received = 0
    while received < 100000:
        received += len(server.recv(65536))
    server.sendall(b"done")
    assert client.recv(9) == b"done"
    client.close()
    assert server.recv(9) == b""
    server.close()
