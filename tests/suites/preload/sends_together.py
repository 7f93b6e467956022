"""Sends of several threads on one connection do not interleave, also if they find no room at first."""

THREADS, ROUNDS, LENGTHS = 4, 12, (20000, 60000)


def writer(client, number):
    for turn in range(ROUNDS):
        length = LENGTHS[turn % 2]
        header = struct.pack("=BI", number, length)
        assert client.send(header + bytes([number]) * length) == len(header) + length


def received(server, count):
    data = b""
    while len(data) < count:
        more = server.recv(count - len(data))
        assert more, "the stream has ended"
        data += more
    return data


for address in ("127.0.0.1", "127.0.0.2"):
    listener = socket.create_server((address, 0))
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    writers = [
        threading.Thread(target=writer, args=(client, number)) for number in range(THREADS)
    ]
    for thread in writers:
        thread.start()
    for _ in range(THREADS * ROUNDS):
        number, length = struct.unpack("=BI", received(server, 5))
        assert number < THREADS and length in LENGTHS, (number, length)
        assert received(server, length) == bytes([number]) * length
    for thread in writers:
        thread.join()
