"""A program that closes each number by itself, those of the library too, and then goes on: nothing of
the library goes round and round for what it has lost, and the port mapper's place is left."""

import os
import resource
import socket
import time


def mapper_answers():
    """Whether somebody holds the port mapper's port of the address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        try:
            other.bind(("127.0.0.1", 3935))
        except OSError:
            return True
    return False


def talk():
    """One conversation over what carries it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        assert is_offloaded(client)
        client.sendall(b"hello")
        assert server.recv(5) == b"hello"


child = os.fork()
if child == 0:
    talk()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
before = socket.create_server(("127.0.0.1", 0))
# The test protocol asks nobody.
assert mapper_answers() or not ASKS_PEERS
for number in range(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0]):
    try:
        os.close(number)
    except OSError:
        pass
# Whoever waits on a number that is closed learns of it when the wait is over.
after = socket.create_server(("127.0.0.1", 0))
until(lambda: not mapper_answers(), "the place is held, and nobody answers")


def rests():
    """Whether a second of rest costs next to nothing."""
    begin = time.process_time()
    time.sleep(1)
    return time.process_time() - begin < 0.1


until(rests, "processor time is spent in rest")
# TCP carries what comes.
client = socket.create_connection(after.getsockname())
server, _ = after.accept()
client.sendall(b"hello")
assert server.recv(5) == b"hello"
