"""The parent accepts and closes, the child sends and receives: inetd, PostgreSQL."""

SIZES = (1, 10, 1000, 100000, 3000000)
CLIENTS = 6


def serve(peer):
    assert is_offloaded(peer)
    assert peer.getpeername()[0] == "127.0.0.1"
    assert peer.family == socket.AF_INET
    while data := peer.recv(65536):
        peer.sendall(data)


def exchange(client, failed):
    try:
        for size in SIZES:
            data = os.urandom(size)
            sender = threading.Thread(target=client.sendall, args=(data,))
            sender.start()
            got = bytearray()
            while len(got) < size:
                chunk = client.recv(65536)
                assert chunk, (size, len(got))
                got += chunk
            sender.join()
            assert got == data, size
        client.shutdown(socket.SHUT_WR)
        assert client.recv(10) == b""
        client.close()
    except BaseException as error:
        failed.append(error)
        raise


listener = socket.create_server(("127.0.0.1", 0))
dialler = os.fork()
if dialler == 0:
    address = listener.getsockname()
    listener.close()
    failed = []
    clients = [socket.create_connection(address) for _ in range(CLIENTS)]
    client_threads = [threading.Thread(target=exchange, args=(client, failed)) for client in clients]
    for client_thread in client_threads:
        client_thread.start()
    for client_thread in client_threads:
        client_thread.join()
    os._exit(1 if failed else 0)
for _ in range(CLIENTS):
    peer, _ = listener.accept()
    if os.fork() == 0:
        listener.close()
        serve(peer)
        os._exit(0)
    peer.close()
for _ in range(CLIENTS + 1):
    _, status = os.wait()
    assert status == 0, status
