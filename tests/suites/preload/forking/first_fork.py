"""A server of one thread forks for the first time in the same turn in which connections have ended, as
redis does at its first snapshot. The fork completes the ends that the stack has not completed."""

SERVERS = 6
TURNS = 60
CLIENTS = 6


def dial(address):
    while True:
        with socket.create_connection(address) as client:
            for _ in range(3):
                client.sendall(b"said")
                assert receive(client, 4) == b"said"


def serve(writer):
    """Serves until `TURNS` turns had an ended connection."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    listener.setblocking(False)
    os.write(writer, b"%d\n" % listener.getsockname()[1])
    waits = select.epoll()
    waits.register(listener, select.EPOLLIN)
    peers = {}
    turns = 0
    while turns < TURNS:
        has_ended = False
        for fd, _ in waits.poll(0.1):
            if fd == listener.fileno():
                try:
                    peer, _ = listener.accept()
                except BlockingIOError:
                    continue
                peer.setblocking(False)
                peers[peer.fileno()] = peer
                waits.register(peer, select.EPOLLIN)
                continue
            data = peers[fd].recv(100)
            if data:
                peers[fd].send(data)
            else:
                peers.pop(fd).close()
                has_ended = True
        turns += has_ended
    child = os.fork()
    if child == 0:
        os._exit(0)
    ended(child)
    # The clients are refused from now on.
    os._exit(0)


def dial_until_refused(address):
    try:
        dial(address)
    except (ConnectionError, AssertionError):
        pass


for _ in range(SERVERS):
    reader, writer = os.pipe()
    server = forked(serve, writer)
    os.close(writer)
    port = int(os.read(reader, 100))
    os.close(reader)
    clients = [forked(dial_until_refused, ("127.0.0.1", port)) for _ in range(CLIENTS)]
    ended(server)
    ended(*clients)
