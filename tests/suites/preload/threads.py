"""Both ends of a connection in one interpreter, which fails if a byte is wrong."""

import os
import socket
import threading


def serve(listener):
    peer, _ = listener.accept()
    while data := peer.recv(65536):
        peer.sendall(data)
    peer.close()


def is_of_unix(sock):
    """True if the kernel's socket is not a TCP socket."""
    number = os.readlink(f"/proc/self/fd/{sock.fileno()}")[len("socket:[") : -1]
    with open("/proc/self/net/unix") as sockets:
        return any(line.split()[6] == number for line in sockets)


listener = socket.create_server(("127.0.0.1", 0))
server = threading.Thread(target=serve, args=(listener,))
server.start()
client = socket.create_connection(listener.getsockname())
assert client.getpeername() == listener.getsockname()
assert client.family == socket.AF_INET and client.type == socket.SOCK_STREAM
for size in (1, 10, 1000, 100000, 3000000):
    data = os.urandom(size)
    sender = threading.Thread(target=client.sendall, args=(data,))
    sender.start()
    got = b""
    while len(got) < size:
        got += client.recv(65536)
    sender.join()
    assert got == data, size
assert is_of_unix(client), "not offloaded"
client.shutdown(socket.SHUT_WR)
assert client.recv(10) == b""
client.close()
server.join()
