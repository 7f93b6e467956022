"""A descriptor is duplicated while the connection is handed over: each duplicate works."""

CONNECTIONS = 150
DUPLICATES = 40
THREADS = 3


def dial(client):
    assert receive(client, THREADS * DUPLICATES) == b"x" * (THREADS * DUPLICATES)
    assert client.recv(1) == b"", "the end"


class Duplicating(threading.Thread):
    """Makes duplicates, and uses them later."""

    def __init__(self, fd):
        super().__init__()
        self.fd, self.begun, self.made = fd, threading.Event(), []

    def run(self):
        for _ in range(DUPLICATES):
            self.made.append(C.dup(self.fd))
            if len(self.made) == 2:
                self.begun.set()

    def use(self):
        for fd in self.made:
            assert C.write(fd, b"x", ctypes.c_size_t(1)) == 1
            assert C.close(fd) == 0


for _ in range(CONNECTIONS):
    server, client = connected(dial)
    threads = [Duplicating(server.fileno()) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    threads[-1].begun.wait()
    assert C.fdopen(server.fileno(), b"r+")
    for thread in threads:
        thread.join()
    for thread in threads:
        thread.use()
    server.close()
    ended(client)
