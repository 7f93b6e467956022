"""A listener that was shut down accepts no connection, and waiting clients are disconnected. The same
applies to `connect` with AF_UNSPEC."""


def shut_down(listener):
    listener.shutdown(socket.SHUT_RDWR)


def shut_down_for_reading(listener):
    listener.shutdown(socket.SHUT_RD)


def is_reset(client):
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def play(host, how, waiting):
    listener = socket.create_server((host, 0))
    address = listener.getsockname()
    clients = [socket.create_connection(address, timeout=DEADLINE) for _ in range(2)]
    listener.accept()[0].close()
    seen = []
    thread = threading.Thread(target=lambda: seen.append(refused(listener.accept)))
    if waiting:
        # The thread has accepted the second client, and waits for a third.
        listener.accept()[0].close()
        thread.start()
        until_asleep(f"{os.getpid()}/task/{thread.native_id}")
    how(listener)
    if waiting:
        thread.join(DEADLINE)
        assert seen == [errno.EINVAL], seen
    assert refused(listener.accept) == errno.EINVAL
    for client in clients:
        assert is_reset(client)
        client.close()
    for _ in range(2):
        why = refused(lambda: dial_nobody(address))
        assert why == errno.ECONNREFUSED, why
    # The program may listen again.
    listener.listen()
    client = socket.create_connection(listener.getsockname(), timeout=DEADLINE)
    peer = listener.accept()[0]
    # No listener was found at this port a moment ago, so the connection may use TCP.
    peer.sendall(b"again")
    assert client.recv(5) == b"again"
    for one in (peer, client, listener):
        one.close()


for host in ("127.0.0.2", "127.0.0.1"):
    for how in (shut_down_for_reading, shut_down, disconnect):
        for waiting in (False, True):
            play(host, how, waiting)
    # SHUT_WR has no effect on a listener.
    listener = socket.create_server((host, 0))
    listener.shutdown(socket.SHUT_WR)
    client = socket.create_connection(listener.getsockname(), timeout=DEADLINE)
    listener.accept()[0].close()
    assert client.recv(1) == b""
    client.close()
    listener.close()
