"""A daemon whose listener is another process's, which is gone, has dialed somebody before it forks
its worker: it listens in that process's place while it forks, and opens what that takes."""

import os
import signal
import socket
import time


def work(listener):
    while True:
        peer, _ = listener.accept()
        with peer:
            peer.sendall(bytes(reversed(receive(peer, 100))))


told, tell = os.pipe()
first = os.fork()
if first == 0:
    listener = socket.create_server(("127.0.0.1", 0))
    listening = os.getpid()
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    while os.path.exists(f"/proc/{listening}"):
        time.sleep(0.01)
    try:
        # Nobody is there.
        socket.create_connection(("127.0.0.1", 1))
    except ConnectionRefusedError:
        pass
    workers = [forked(work, listener)]
    os.write(tell, b"%d %d" % (listener.getsockname()[1], os.getpid()))
    os.wait()
    os._exit(0)
ended(first)
os.close(tell)
port, master = map(int, os.read(told, 100).split())


def dial():
    with socket.create_connection(("127.0.0.1", port)) as client:
        data = os.urandom(100)
        client.sendall(data)
        assert receive(client, 100) == bytes(reversed(data))


ended(forked(dial))
os.killpg(master, signal.SIGKILL)
