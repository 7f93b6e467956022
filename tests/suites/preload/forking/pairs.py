"""The functions of the scripts of this directory, each of which begins with a copy of this file."""


def connected(dial):
    """Forks a client that runs `dial` with its end of a connection. Returns the server's end, and the
    process id of the client."""
    listener = socket.create_server(("127.0.0.1", 0))
    client = os.fork()
    if client == 0:
        try:
            address = listener.getsockname()
            listener.close()
            dial(socket.create_connection(address))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    peer, _ = listener.accept()
    listener.close()
    return peer, client


def forked(work, *arguments, fork=os.fork):
    """Forks a child that runs `work` and exits."""
    child = fork()
    if child == 0:
        try:
            work(*arguments)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def ended(*children):
    """Checks that all children end with success."""
    for child in children:
        _, status = os.waitpid(child, 0)
        assert status == 0, (child, status)


def ended_soon(process):
    """Checks that a process ends with success, in less time than a wait for its peer would take."""
    handle = os.pidfd_open(process)
    has_ended = select.select([handle], [], [], 25)[0]
    os.close(handle)
    assert has_ended, "the process still runs"
    ended(process)


def receive(sock, size):
    """Receives `size` bytes."""
    got = bytearray()
    while len(got) < size:
        chunk = sock.recv(min(65536, size - len(got)))
        assert chunk, (size, len(got))
        got += chunk
    return bytes(got)
