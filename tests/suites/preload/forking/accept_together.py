"""Many threads and processes wait in accept on one listener, and offloaded and plain peers connect: a
thread that is too late for a peer continues to wait for both kinds."""

ROUNDS = 8
WAITING = 3


def serve(listener, ends):
    while True:
        with listener.accept()[0] as peer:
            peer.sendall(b"h")
            if peer.recv(1) == ends:
                return


def serve_by_threads(listener):
    threads = [threading.Thread(target=serve, args=[listener, b"t"]) for _ in range(WAITING)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def dial(host, port, byte):
    """Connects. A server thread soon accepts and ends the connection."""
    with socket.create_connection((host, port), timeout=DEADLINE) as client:
        assert client.recv(1) == b"h"
        client.sendall(byte)
        assert client.recv(1) == b""


for limit in (None, DEADLINE):
    listener = socket.create_server(("0.0.0.0", 0))
    if limit:
        timeout = (limit).to_bytes(8, "little") + bytes(8)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
    port = listener.getsockname()[1]
    children = [forked(serve_by_threads, listener), forked(serve_by_threads, listener)]
    threads = threading.Thread(target=serve_by_threads, args=[listener])
    threads.start()
    everybody = (len(children) + 1) * WAITING
    for _ in range(ROUNDS):
        # The peer on TCP wakes all threads, and one of them accepts it.
        dial("127.0.0.2", port, b".")
        held = [socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) for _ in range(everybody)]
        # Each client is served by another thread.
        for client in held:
            assert client.recv(1) == b"h"
        for client in held:
            client.sendall(b".")
            assert client.recv(1) == b""
            client.close()
    for _ in range(everybody):
        dial("127.0.0.1", port, b"t")
    ended(*children)
    threads.join()
    listener.close()
