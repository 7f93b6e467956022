"""A program inherits a listener over an exec and forks, but never accepts: it receives no peers."""

IDLE = """
import os, sys
for _ in range(3):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
os.write(int(sys.argv[1]), b"forked")
os.read(int(sys.argv[2]), 1)
"""
listener = socket.create_server(("127.0.0.1", 0))
output, forked_end = os.pipe()
stop, stopping = os.pipe()
for number in (listener.fileno(), forked_end, stop):
    os.set_inheritable(number, True)
idle = os.fork()
if idle == 0:
    os.close(stopping)
    os.execv(sys.executable, [sys.executable, "-c", IDLE, str(forked_end), str(stop)])
assert os.read(output, 6) == b"forked"
for number in range(8):
    with socket.create_connection(listener.getsockname(), timeout=DEADLINE) as client:
        assert is_offloaded(client)
        server = listener.accept()[0]
        server.sendall(b"%d" % number)
        assert client.recv(1) == b"%d" % number
        server.close()
os.close(stopping)
ended(idle)
