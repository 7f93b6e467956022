import os
import select
import socket
import subprocess


def carrier(sock):
    """The protocol of a socket: an AF_UNIX socket of `local`, or one end of the library's pair."""
    number = os.readlink(f"/proc/self/fd/{sock.fileno()}")[len("socket:[") : -1]
    with open("/proc/self/net/unix", errors="replace") as sockets:
        names = [line.split()[7:] for line in sockets if line.split()[6] == number]
    return "tcp" if not names else "local" if names[0] else "a protocol"


for _ in range(2):
    with socket.socket() as listener, socket.socket() as client:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(5)
        client.connect(listener.getsockname())
        ready, _, _ = select.select([listener], [], [], 2)
        print("carried by", carrier(client), flush=True)
        try:
            if ready:
                server, _ = listener.accept()
                client.sendall(b"x")
                assert server.recv(1) == b"x"
                server.close()
            else:
                client.settimeout(2)
                client.sendall(b"x")
                client.recv(1)
        except OSError as error:
            print("an error:", error, flush=True)
print("done")
