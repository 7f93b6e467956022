"""SO_RCVLOWAT on a connection, and a longer backlog on a listener that listens already."""

LOW = 1000


def is_readable(sock):
    return bool(select.select([sock], [], [], 0)[0])


def low_mark(address):
    listener = socket.create_server((address, 0))
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    assert is_offloaded(server) == (address == "127.0.0.1")
    client.sendall(b"a" * 10)
    until(lambda: is_readable(server), "ten bytes")
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, LOW)
    assert not is_readable(server)
    poll = select.epoll()
    poll.register(server, select.EPOLLIN)
    assert poll.poll(0) == []
    client.sendall(b"b" * 500)
    let_others_run(2)
    assert not is_readable(server) and poll.poll(0) == []
    # A call that does not wait returns what there is, and a call for less waits for less.
    assert server.recv(5, socket.MSG_DONTWAIT) == b"a" * 5
    assert server.recv(5) == b"a" * 5
    client.sendall(b"c" * 500)
    until(lambda: is_readable(server), "enough bytes")
    assert poll.poll(DEADLINE)
    later = while_asleep(lambda: client.sendall(b"d" * LOW))
    assert len(server.recv(LOW)) == LOW
    received = server.recv(2 * LOW)
    assert len(received) >= LOW, len(received)
    later.join()
    # The end is shown whatever the mark is, and so is a lower mark.
    client.sendall(b"e")
    let_others_run(2)
    assert not is_readable(server)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    assert is_readable(server) and server.recv(9) == b"e"
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, LOW)
    client.close()
    until(lambda: is_readable(server), "the end")
    assert server.recv(9) == b""


def many_short(address):
    """Short messages fill the receiving end before the mark is reached, which it must show."""
    listener = socket.create_server((address, 0))
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1 << 30)
    writer = threading.Thread(target=lambda: [client.send(b"x" * 100) for _ in range(20000)])
    writer.start()
    received = 0
    while writer.is_alive() or is_readable(server):
        if is_readable(server):
            received += len(server.recv(1 << 16, socket.MSG_DONTWAIT))
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    server.settimeout(DEADLINE)
    while received < 100 * 20000:
        received += len(server.recv(1 << 16))


def longer_backlog():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    address = listener.getsockname()
    first = [socket.create_connection(address) for _ in range(2)]
    listener.listen(20)
    clients = first + [socket.create_connection(address, timeout=DEADLINE) for _ in range(10)]
    assert all(is_offloaded(client) for client in clients)
    for client in clients:
        server, _ = listener.accept()
        assert server.getpeername() == client.getsockname()


for address in ("127.0.0.1", "127.0.0.2"):
    low_mark(address)
many_short("127.0.0.1")
longer_backlog()
