"""Sockets and threads in another network namespace than the process began in."""

import ctypes
import os
import socket
import subprocess

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
SYS_SETNS = 308
PORT = 5000


def enter(namespace, by_number=False):
    if by_number:
        result = libc.syscall(SYS_SETNS, namespace, CLONE_NEWNET)
    else:
        result = libc.setns(namespace, CLONE_NEWNET)
    assert result == 0, os.strerror(ctypes.get_errno())


def serve(word, listener):
    """Serves in a thread, which is in the namespace of the thread that starts it."""

    def work():
        while True:
            peer = listener.accept()[0]
            peer.sendall(word)
            peer.close()

    threading.Thread(target=work, daemon=True).start()


def listening(port, listens=True):
    listener = socket.socket()
    listener.bind(("127.0.0.1", port))
    if listens:
        listener.listen()
    return listener


def answer(client, port):
    """The word of the service that a socket reaches; empty if no socket listens."""
    client.settimeout(DEADLINE)
    try:
        client.connect(("127.0.0.1", port))
    except ConnectionRefusedError:
        return b""
    said = b""
    while chunk := client.recv(100):
        said += chunk
    return said


home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
serve(b"home", listening(PORT))
assert answer(socket.socket(), PORT) == b"home"
of_home = [socket.socket() for _ in range(2)]
late = listening(PORT + 2, listens=False)

# Another process, whose switch belongs to the other namespace, offers services there.
ready, writer = os.pipe()
lasts, closes = os.pipe()
child = os.fork()
if child == 0:
    os.close(ready)
    os.close(closes)
    assert libc.unshare(CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    serve(b"other", listening(PORT))
    serve(b"other", listening(PORT + 1))
    os.write(writer, b".")
    # The process ends with its parent.
    os.read(lasts, 1)
    os._exit(0)
os.close(writer)
assert os.read(ready, 1) == b"."
other = os.open(f"/proc/{child}/ns/net", os.O_RDONLY | os.O_CLOEXEC)

enter(other)
of_other = [socket.socket() for _ in range(2)]
# A socket belongs to the namespace in which it was made.
assert answer(of_home[0], PORT) == b"home"
assert answer(of_home[1], PORT + 1) == b""
assert answer(of_other[0], PORT) == b"other"
late.listen()
serve(b"late", late)
assert answer(socket.socket(), PORT + 2) == b""

enter(home, by_number=True)
assert answer(of_other[1], PORT) == b"other"
assert answer(socket.socket(), PORT + 1) == b""
assert answer(socket.socket(), PORT + 2) == b"late"
# Sockets of the own namespace may leave TCP again.
client = socket.create_connection(("127.0.0.1", PORT))
assert is_offloaded(client)
client.close()
os.close(closes)
assert os.waitpid(child, 0)[1] == 0
