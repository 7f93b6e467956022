"""`connect` with AF_UNSPEC ends a connection. The socket keeps its options and connects again."""


def ends(sock):
    """Returns true if the stream has ended; over TCP it ends by a reset."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


for host in ("127.0.0.1", "127.0.0.2"):
    with socket.create_server((host, 0)) as listener, select.epoll() as watcher:
        client = socket.create_connection(listener.getsockname())
        server = listener.accept()[0]
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        watcher.register(client, select.EPOLLIN)
        for end in (client, server):
            end.sendall(b"x")
        assert server.recv(1) == b"x" and client.recv(1) == b"x"
        disconnect(client)
        assert ends(server)
        server.close()
        try:
            raise AssertionError(client.getpeername())
        except OSError as error:
            assert error.errno == errno.ENOTCONN, error
        assert not is_offloaded(client)
        client.connect(listener.getsockname())
        assert is_offloaded(client) == (host == "127.0.0.1")
        server = listener.accept()[0]
        server.sendall(b"again")
        assert watcher.poll(DEADLINE) == [(client.fileno(), select.EPOLLIN)]
        assert client.recv(5) == b"again"
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        # An accepted socket as well.
        disconnect(server)
        assert ends(client)
        client.close()
        server.connect(listener.getsockname())
        client = listener.accept()[0]
        client.sendall(b"y")
        assert server.recv(1) == b"y"
        client.close()
        server.close()
