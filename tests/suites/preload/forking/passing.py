"""A connection is passed over a Unix socket, to programs with and without the library."""

TAKE = """
import socket
door = socket.socket(fileno=3)
_, [number], _, _ = socket.recv_fds(door, 1, 1)
taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=number)
while data := taken.recv(65536):
    taken.sendall(data)
"""


def dial(client):
    data = os.urandom(200000)
    client.sendall(data[:1000])
    threading.Thread(target=lambda: (client.sendall(data[1000:]), client.shutdown(1))).start()
    assert receive(client, len(data)) == data
    assert client.recv(1) == b""


def taker(door, environment):
    os.dup2(door.fileno(), 3)
    os.set_inheritable(3, True)
    os.execve(sys.executable, [sys.executable, "-c", TAKE], environment)


plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
for environment in (plain, dict(os.environ)):
    here, there = socket.socketpair()
    child = forked(taker, there, environment)
    there.close()
    server, client = connected(dial)
    socket.send_fds(here, [b"x"], [server.fileno()])
    server.close()
    here.close()
    ended(child, client)
