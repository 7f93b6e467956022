"""A lingering close ends when the last byte was sent, even if the peer has ended its stream long before
and no other event occurs. A signal ends the close, too."""

# Longer than the time limit of the suite, so a close that waits for its timeout hangs.
LINGER = 3600


def connected():
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    assert is_offloaded(client) and is_offloaded(server)
    return client, server


def full():
    """A full connection whose peer has ended its stream and does not read."""
    client, server = connected()
    server.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b"", "the end of the peer's stream is read first"
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER))
    return client, server, fill(client)


client, server, sent = full()
got = 0


def read_all():
    global got
    while data := server.recv(1 << 16):
        got += len(data)


reader = while_asleep(read_all)
client.close()
reader.join()
assert got == sent, (got, sent)

# A signal ends the close, and the remaining bytes are still sent.
signals = []
signal.signal(signal.SIGALRM, lambda *_: signals.append(1))
client, server, sent = full()
main = threading.get_ident()
signaller = while_asleep(lambda: signal.pthread_kill(main, signal.SIGALRM))
client.close()
signaller.join()
assert signals
got = 0
read_all()
assert got == sent, (got, sent)
