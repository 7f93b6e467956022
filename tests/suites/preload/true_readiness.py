"""What a socket is said to be ready for can be done: no wake-up is a false one."""
import select
import socket
import threading

ROUNDS = 3000
BYTES = 16

listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()


def answer():
    while data := server.recv(4096):
        for byte in data:
            server.send(bytes([byte]))


threading.Thread(target=answer, daemon=True).start()
client.setblocking(False)
epoll = select.epoll()
epoll.register(client, select.EPOLLIN)
false = 0
for number in range(ROUNDS):
    client.send(b"x" * BYTES)
    arrived = 0
    while arrived < BYTES:
        epoll.poll()
        try:
            arrived += len(client.recv(4096))
        except BlockingIOError:
            false += 1
assert false == 0, f"{false} false wake-ups in {ROUNDS} rounds"
