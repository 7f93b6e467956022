"""A listener that one of several processes has shut down is shut down for all of them."""


def wait_in_accept(listener, writer):
    os.write(writer, b".")
    assert refused(listener.accept) == errno.EINVAL
    assert refused(listener.accept) == errno.EINVAL


def shut_down(listener):
    listener.shutdown(socket.SHUT_RDWR)


for host in ("127.0.0.2", "127.0.0.1"):
    for by_worker in (True, False):
        listener = socket.create_server((host, 0))
        address = listener.getsockname()
        # No listener was found at this port a moment ago, so the connection may use TCP.
        with socket.create_connection(address), listener.accept()[0]:
            pass
        asleep, sleep = os.pipe()
        worker = forked(wait_in_accept, listener, sleep)
        os.read(asleep, 1)
        until_asleep(worker)
        if by_worker:
            ended(forked(shut_down, listener))
        else:
            shut_down(listener)
        ended(worker)
        assert refused(listener.accept) == errno.EINVAL
        for _ in range(2):
            why = refused(lambda: dial_nobody(address))
            assert why == errno.ECONNREFUSED, why
        listener.close()
        for pipe in (asleep, sleep):
            os.close(pipe)
