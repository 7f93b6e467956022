"""Accepts on a listener, given by its descriptor, and echoes the received bytes."""
import socket
import sys
import threading


def echo(peer):
    while chunk := peer.recv(1 << 16):
        peer.sendall(chunk)
    peer.shutdown(socket.SHUT_WR)
    peer.close()


listener = socket.socket(fileno=int(sys.argv[1]))
listener.setblocking(True)
while True:
    threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
