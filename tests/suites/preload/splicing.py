"""Programs that move the bytes of connections through pipes in the kernel, as proxies do."""

SENT = bytes(range(256)) * 4096


def received(sock):
    got = bytearray()
    while data := sock.recv(1 << 16):
        got += data
    return bytes(got)


def spliced(source, target, pipe):
    """Moves all bytes of one socket to another socket through a pipe."""
    out, into = pipe
    moved = 0
    while count := os.splice(source.fileno(), into, 1 << 16):
        while count > 0:
            some = os.splice(out, target.fileno(), count)
            count -= some
            moved += some
    return moved


for address in ("127.0.0.1", "127.0.0.2"):
    front = socket.create_server((address, 0))
    back = socket.create_server((address, 0))

    def proxy():
        source, _ = front.accept()
        target = socket.create_connection(back.getsockname())
        assert is_offloaded(target) == (address == "127.0.0.1")
        pipe = os.pipe()
        # Bytes that were received before the first splice are not lost, and other calls still work.
        assert source.recv(5) == b"head:"
        target.sendall(b"Head:")
        moved = spliced(source, target, pipe)
        assert moved == len(SENT), moved
        target.shutdown(socket.SHUT_WR)
        assert target.recv(10) == b"thanks"
        source.sendall(b"thanks")
        source.close()
        target.close()

    thread = threading.Thread(target=proxy)
    thread.start()
    client = socket.create_connection(front.getsockname())
    sender = threading.Thread(target=lambda: (client.sendall(b"head:" + SENT), client.shutdown(socket.SHUT_WR)))
    sender.start()
    server, _ = back.accept()
    got = received(server)
    assert got == b"Head:" + SENT, len(got)
    server.sendall(b"thanks")
    server.close()
    assert client.recv(10) == b"thanks"
    sender.join()
    thread.join()

    # The bytes of a pipe are spliced into a socket.
    client = socket.create_connection(front.getsockname())
    server, _ = front.accept()
    out, into = os.pipe()
    os.write(into, b"of a pipe")
    assert os.splice(out, client.fileno(), 9) == 9
    assert server.recv(100) == b"of a pipe"
    client.close()
    assert server.recv(1) == b""

    # The flag applies to the pipe and not to a socket that blocks.
    client = socket.create_connection(front.getsockname())
    server, _ = front.accept()
    client.sendall(b"early")
    assert os.splice(server.fileno(), into, 9, flags=os.SPLICE_F_NONBLOCK) == 5
    sender = while_asleep(lambda: client.sendall(b"late"))
    assert os.splice(server.fileno(), into, 9, flags=os.SPLICE_F_NONBLOCK) == 4
    sender.join()
    assert os.read(out, 100) == b"earlylate"
    server.setblocking(False)
    splice = lambda: os.splice(server.fileno(), into, 9, flags=os.SPLICE_F_NONBLOCK)
    assert refused(splice) == errno.EAGAIN
    server.setblocking(True)
    client.sendall(b"more")
    os.set_blocking(into, False)
    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, 4096)
    os.write(into, b"x" * 4096)
    assert refused(splice) == errno.EAGAIN
    client.close()
    server.close()
