"""A server listens, becomes a daemon and forks its workers: nginx."""


def work(listener):
    while True:
        peer, _ = listener.accept()
        assert is_offloaded(peer)
        with peer:
            peer.sendall(bytes(reversed(receive(peer, 100))))


reader, writer = os.pipe()
first = os.fork()
if first == 0:
    listener = socket.create_server(("127.0.0.1", 0))
    listening = os.getpid()
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    # The process that listened has ended before the first worker is forked, with all of its threads,
    # each of which would keep its descriptors open.
    while os.path.exists(f"/proc/{listening}"):
        time.sleep(0.01)
    workers = [forked(work, listener) for _ in range(2)]
    for worker in workers:
        # A worker that is in accept also listens for offloaded connections.
        until_asleep(worker)
    os.write(writer, b"%d %d" % (listener.getsockname()[1], os.getpid()))
    os.wait()
    os._exit(0)
ended(first)
port, master = map(int, os.read(reader, 100).split())


def dial():
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert is_offloaded(client)
            data = os.urandom(100)
            client.sendall(data)
            assert receive(client, 100) == bytes(reversed(data))


ended(forked(dial))
os.killpg(master, signal.SIGKILL)
