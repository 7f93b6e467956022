"""A child has inherited connections and does not use them, as when redis writes a snapshot."""

BLOCK = bytes(range(256)) * 64


def dial(client):
    for _ in range(200):
        client.sendall(BLOCK)
        assert receive(client, len(BLOCK)) == BLOCK
    # The parent has closed, but a child still has the connection, so the peer sees no end.
    assert client.recv(1) == b"c"
    assert select.select([client], [], [], 0.2)[0] == []
    client.sendall(b"kill")
    assert client.recv(1) == b""


server, client = connected(dial)
ready, release = os.pipe()
children = []
for turn in range(200):
    if turn % 50 == 10:
        # The child exits while the parent continues.
        children.append(forked(time.sleep, 0.01))
    server.sendall(receive(server, len(BLOCK)))
ended(*children)


def hold():
    # This end is not used before the client sends a byte.
    os.close(release)
    os.read(ready, 1)
    assert server.recv(10) == b"kill"
    os.kill(os.getpid(), signal.SIGKILL)


holder = forked(hold)
os.close(ready)
server.sendall(b"c")
server.close()
time.sleep(0.3)
os.close(release)
_, status = os.waitpid(holder, 0)
assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
ended(client)
