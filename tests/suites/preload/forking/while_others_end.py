"""A process forks while connections of it end: whatever the fork finds of them may be the last that
is left, and ends them in its midst."""

import os
import socket
import threading

CLIENTS = 3
FORKS = 400


def dial(address):
    while True:
        try:
            with socket.create_connection(address) as client:
                client.sendall(b"said")
                client.recv(4)
        except ConnectionError:
            return


def answer(listener):
    while not is_over.is_set():
        peer, _ = listener.accept()
        try:
            peer.sendall(receive(peer, 4))
        finally:
            peer.close()


is_over = threading.Event()
listener = socket.create_server(("127.0.0.1", 0), backlog=64)
clients = [forked(dial, listener.getsockname()) for _ in range(CLIENTS)]
answering = [threading.Thread(target=answer, args=[listener]) for _ in range(2)]
for thread in answering:
    thread.start()
for _ in range(FORKS):
    child = os.fork()
    if child == 0:
        os._exit(0)
    ended(child)
is_over.set()
for thread in answering:
    thread.join()
for client in clients:
    os.kill(client, 9)
