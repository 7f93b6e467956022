"""A session limits its address space to what it needs, as an FTP server does: the addresses that the
stack reserves do not count, and the limit still holds and is read as it was set."""

LIMIT = 200 << 20


def serve(peer):
    assert is_offloaded(peer)
    for set_limit in (resource.setrlimit, lambda *limit: resource.prlimit(0, *limit)):
        limits = (LIMIT, resource.RLIM_INFINITY)
        set_limit(resource.RLIMIT_AS, limits)
        assert resource.getrlimit(resource.RLIMIT_AS) == limits
        assert resource.prlimit(0, resource.RLIMIT_AS) == limits
        memory = bytearray(32 << 20)
        assert peer.recv(5) == b"hello"
        peer.sendall(memory[:5])
        try:
            memory = bytearray(LIMIT)
            raise AssertionError("there is no limit")
        except MemoryError:
            pass


def dial(server):
    for _ in range(2):
        server.sendall(b"hello")
        assert receive(server, 5) == bytes(5)


peer, client = connected(dial)
session = forked(serve, peer)
peer.close()
ended(session, client)
