"""A server that does not accept keeps only as many peers as its backlog; later it serves all peers."""

BACKLOG = 1
# Within the host, surplus peers wait in the kernel's TCP backlog, which takes seconds.
CLIENTS = 2 * (BACKLOG + 1) if LOCAL else 40


def dial(ports, ends):
    """Connects all clients at once; each waits for an answer."""
    port = int(os.read(ports, 16))
    clients = [socket.socket() for _ in range(CLIENTS)]
    for client in clients:
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", port))
    for client in clients:
        client.settimeout(DEADLINE)
        assert select.select([], [client], [], DEADLINE)[1], "never connected"
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        client.sendall(b"?")
    for client in clients:
        assert client.recv(1) == b"!"
    os.read(ends, 1)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


ports, port = os.pipe()
ends, end = os.pipe()
child = os.fork()
if child == 0:
    try:
        os.close(end)
        dial(ports, ends)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)

listener = socket.socket()
listener.bind(("0.0.0.0", 0))
listener.listen(BACKLOG)
before = descriptors()
os.write(port, str(listener.getsockname()[1]).encode())
most = 0
until = time.monotonic() + 2
while time.monotonic() < until:
    most = max(most, descriptors() - before)
    time.sleep(0.02)
# The waiting connections, the connections that are being made, and threads of the library.
assert most < 60, f"{most} descriptors for {CLIENTS} peers that nobody accepts"

listener.settimeout(DEADLINE)
accepted = []
for _ in range(CLIENTS):
    accepted.append(listener.accept()[0])
offloaded = sum(is_offloaded(sock) for sock in accepted)
assert offloaded > BACKLOG, f"{offloaded} were offloaded"
for sock in accepted:
    sock.settimeout(DEADLINE)
    assert sock.recv(1) == b"?"
    sock.sendall(b"!")
os.close(end)
assert os.waitpid(child, 0)[1] == 0
