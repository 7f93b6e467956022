"""A program that inherits a listener of a program without the library and forks, but never accepts,
receives no peers: the other program accepts all of them over TCP."""

PEERS = 8
IDLE = """
import os, sys
for _ in range(3):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
print("forked", flush=True)
sys.stdin.read()
"""
PLAIN = """
import os, socket, subprocess, sys
listener = socket.create_server(("127.0.0.1", 0))
idle = subprocess.Popen(
    [sys.executable, "-c", sys.argv[1]],
    env=dict(os.environ, LD_PRELOAD=sys.argv[2]),
    pass_fds=[listener.fileno()],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
)
assert idle.stdout.readline() == b"forked\\n"
print(listener.getsockname()[1], flush=True)
for _ in range(int(sys.argv[3])):
    listener.accept()[0].sendall(b"hello")
idle.communicate()
sys.exit(idle.returncode)
"""
environment = dict(os.environ)
library = environment.pop("LD_PRELOAD")
words = [sys.executable, "-c", PLAIN, IDLE, library, str(PEERS)]
plain = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE)
address = "127.0.0.1", int(plain.stdout.readline())
for _ in range(PEERS):
    with socket.create_connection(address, timeout=DEADLINE) as client:
        assert not is_offloaded(client)
        assert receive(client, 5) == b"hello"
assert plain.wait() == 0


# This process receives its own peers by the protocol.
def dial(server):
    assert is_offloaded(server)
    server.sendall(b"hello")


peer, client = connected(dial)
assert receive(peer, 5) == b"hello"
ended(client)
