"""The process that accepted has ended, and its child continues the connection."""


def dial(client):
    for size in (1, 1000, 500000):
        data = os.urandom(size)
        threading.Thread(target=client.sendall, args=(data,)).start()
        assert receive(client, size) == data
    client.shutdown(1)
    assert client.recv(1) == b""


def echo(peer):
    time.sleep(0.2)
    while data := peer.recv(65536):
        peer.sendall(data)


for leave in (os._exit, sys.exit):
    # The client is the daemon's child, so its status is sent through a pipe.
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.close(reader)
        listener = socket.create_server(("127.0.0.1", 0))
        if os.fork() == 0:
            address = listener.getsockname()
            listener.close()
            dial(socket.create_connection(address))
            os.write(writer, b"well")
            os._exit(0)
        peer, _ = listener.accept()
        if os.fork() == 0:
            echo(peer)
            os._exit(0)
        leave(0)
    os.close(writer)
    ended(middle)
    assert os.read(reader, 4) == b"well"
    os.close(reader)
