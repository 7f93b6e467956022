"""What a program sets by SO_SNDBUF and SO_RCVBUF bounds the bytes that the two ends of a connection
hold while nobody reads, as over TCP."""

OURS, TCP = "127.0.0.1", "127.0.0.2"
SOL, SNDBUF, RCVBUF = socket.SOL_SOCKET, socket.SO_SNDBUF, socket.SO_RCVBUF


def pair(host, size):
    """A connection whose sockets have the sizes of their buffers from the beginning."""
    with socket.socket() as listener, socket.socket() as here:
        for sock in listener, here:
            sock.setsockopt(SOL, SNDBUF, size)
            sock.setsockopt(SOL, RCVBUF, size)
        listener.bind((host, 0))
        listener.listen()
        here.connect(listener.getsockname())
        return here.dup(), listener.accept()[0]


def sizes(ends):
    return [sock.getsockopt(SOL, name) for sock in ends for name in (SNDBUF, RCVBUF)]


def drain(sock, size):
    while size:
        some = len(sock.recv(min(size, 1 << 20)))
        assert some, "an early end"
        size -= some


def send_while_drained(ends, size, queued=0):
    """Sends, while the other end reads these bytes after those that are queued already."""
    here, there = ends
    reader = threading.Thread(target=drain, args=(there, queued + size))
    reader.start()
    here.sendall(b"y" * size)
    reader.join()


for size in 1, 4096, 30_000, 100_000:
    ours, tcp = pair(OURS, size), pair(TCP, size)
    assert is_offloaded(ours[0]) and not is_offloaded(tcp[0])
    # The connection within the host has one buffer, the sender's, and the kernel counts its memory.
    assert LOCAL or sizes(ours) == sizes(tcp), (sizes(ours), sizes(tcp))
    for _ in "to the accepting end", "to the connecting end":
        taken, by_tcp = fill(ours[0]), fill(tcp[0])
        assert taken <= 2 * by_tcp, (size, taken, by_tcp)
        assert LOCAL or by_tcp <= 4 * taken, (size, taken, by_tcp)
        # Bytes are sent as soon as the reader makes room.
        send_while_drained(ours, 300_000, taken)
        ours, tcp = ours[::-1], tcp[::-1]
    for sock in *ours, *tcp:
        sock.close()

# A smaller size on a connection that holds more bytes takes effect as they are read; no byte is lost.
for end in OURS, TCP:
    with socket.socket() as listener:
        # The kernel's TCP enlarges a buffer without a size while its bytes are read.
        listener.setsockopt(SOL, RCVBUF, 30_000)
        listener.bind((end, 0))
        listener.listen()
        here = socket.create_connection(listener.getsockname())
        there = listener.accept()[0]
    before = fill(here)
    here.setsockopt(SOL, SNDBUF, 4096)
    send_while_drained((here, there), 200_000, before)
    let_others_run(rounds=3)
    after = fill(here)
    assert after < before, (end, before, after)
    # A larger size makes room at once.
    here.setsockopt(SOL, SNDBUF, 200_000)
    here.setblocking(False)
    assert LOCAL or here.send(b"more") == 4
    drain(there, after + 4 if not LOCAL else after)
    here.close()
    there.close()
