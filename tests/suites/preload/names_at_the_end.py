"""A connection whose two directions have ended has no peer any more."""


def ends(address):
    listener = socket.create_server((address, 0))
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    assert is_offloaded(client) == (address == "127.0.0.1")
    own = client.getsockname()
    client.shutdown(socket.SHUT_WR)
    assert server.recv(1) == b""
    for end, other in ((client, server), (server, client)):
        assert end.getpeername() == other.getsockname()
    server.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b""
    for end in client, server:
        until(lambda: gone(end), "it has a peer")
    assert client.getsockname() == own
    client.close()
    server.close()


def gone(end):
    try:
        end.getpeername()
    except OSError as error:
        assert error.errno == errno.ENOTCONN
        return True
    return False


ends("127.0.0.1")
ends("127.0.0.2")
