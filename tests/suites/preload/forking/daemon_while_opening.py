"""A server that becomes a daemon while its first connection opens the adapter can still connect."""


def greets(address):
    # This process has the listener, too, so it sees no error if the server has ended before.
    signal.alarm(DEADLINE)
    # The server may have ended.
    try:
        with socket.create_connection(address) as client:
            client.recv(1)
    except OSError:
        pass


def become_daemon(answers, pause):
    listener = socket.create_server(("127.0.0.1", 0))
    forked(greets, listener.getsockname())
    time.sleep(pause)
    # The calling process exits within the call.
    assert C.daemon(1, 1) == 0
    with socket.create_connection(answers) as client:
        client.sendall(b"said")
        assert client.recv(1) == b""


for number in range(24):
    with socket.create_server(("127.0.0.1", 0)) as answers:
        ended(forked(become_daemon, answers.getsockname(), 0.001 * (number % 12)))
        peer, _ = answers.accept()
        with peer:
            assert receive(peer, 4) == b"said"
