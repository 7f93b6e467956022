"""Listeners that travel between processes. Each cell of the matrix has a way to travel, processes that
keep the listener, and calls of the receiver. Each client is served by a process that accepts, and is
refused once no process has the listener, as over TCP."""

import itertools

CLIENTS = 4
# The number of the listener and of the control socket in a process that was executed.
LISTENER, CONTROL = 20, 21

# Runs in the receiver. `how` has the calls that it makes.
RECEIVER = '''
import os, select, socket, sys


def receive_and_serve(listener, control, how):
    """Serves clients until the other end of the control socket is closed."""
    if "closes" in how:
        for number in range(3, 1024):
            if number not in (listener.fileno(), control.fileno()):
                try:
                    os.close(number)
                except OSError:
                    pass
    if "listens" in how:
        listener.listen(20)
    listener.setblocking(False)
    control.send(b"r")
    accepts = "accepts" in how
    while True:
        waited = [control, listener] if accepts else [control]
        ready = select.select(waited, [], [])[0]
        if listener in ready:
            try:
                peer = listener.accept()[0]
            except BlockingIOError:
                continue
            peer.sendall(b"receiver")
            peer.close()
        elif control in ready:
            if not control.recv(1):
                return
            # The sender has ended the work of this process as an acceptor.
            accepts = False
            control.send(b"d")
'''
EXECUTED = RECEIVER + f'''
how = sys.argv[1]
control = socket.socket(fileno={CONTROL})
if "scm" in how:
    listener = socket.socket(fileno=socket.recv_fds(control, 1, 1)[1][0])
    control.recv(1)
elif "pidfd" in how:
    import ctypes
    number = int(control.recv(10))
    process = os.pidfd_open(os.getppid())
    listener = socket.socket(fileno=ctypes.CDLL(None).syscall(438, process, number, 0))
else:
    listener = socket.socket(fileno={LISTENER})
receive_and_serve(listener, control, how)
'''
exec(RECEIVER)


def start(way, listener, how):
    """Starts the receiver. Returns its control socket and its process."""
    ours, theirs = socket.socketpair()
    arguments = [sys.executable, "-c", EXECUTED, f"{way} {how}"]
    if way == "fork":
        child = os.fork()
        if child == 0:
            ours.close()
            receive_and_serve(listener, theirs, how)
            os._exit(0)
    elif way == "exec":
        child = os.fork()
        if child == 0:
            os.dup2(theirs.fileno(), CONTROL)
            os.dup2(listener.fileno(), LISTENER)
            os.closerange(CONTROL + 1, 1024)
            os.execv(sys.executable, arguments)
    else:
        actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), CONTROL)]
        if way == "spawn":
            actions.append((os.POSIX_SPAWN_DUP2, listener.fileno(), LISTENER))
        child = os.posix_spawn(sys.executable, arguments, os.environ, file_actions=actions)
    theirs.close()
    if way == "scm":
        socket.send_fds(ours, [b"."], [listener.fileno()])
        # The sender uses the listener before the receiver does.
        assert refused(listener.accept) == errno.EAGAIN
        ours.send(b".")
    elif way == "pidfd":
        ours.send(b"%d" % listener.fileno())
    ours.settimeout(DEADLINE)
    assert ours.recv(1) == b"r", "the receiver has ended"
    return ours, child


def answers(listener, address, accepts, when_connected=lambda: None):
    """Connects all clients, and returns their answers. This process accepts as well, if `accepts`."""
    clients = [socket.create_connection(address, timeout=DEADLINE) for _ in range(CLIENTS)]
    when_connected()
    said = {client: b"" for client in clients}
    while said_nothing := [client for client in clients if not said[client]]:
        waited = said_nothing + ([listener] if accepts else [])
        ready = select.select(waited, [], [], DEADLINE)[0]
        assert ready, "no client is served"
        for one in ready:
            if one is not listener:
                said[one] = one.recv(20)
                assert said[one], "a client sees the end without an answer"
                continue
            try:
                peer = listener.accept()[0]
            except BlockingIOError:
                continue
            peer.sendall(b"sender")
            peer.close()
    for client in clients:
        client.close()
    return set(said.values())


def cell(way, keeps, how):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(20)
    listener.setblocking(False)
    address = listener.getsockname()
    control, child = start(way, listener, how)
    both = {b"sender", b"receiver"}
    receiver_accepts = "accepts" in how
    if keeps == "receiver":
        listener.close()
    if receiver_accepts:
        # The receiver alone accepts, then both processes do.
        assert answers(listener, address, False) == {b"receiver"}
    if keeps == "both":
        assert answers(listener, address, True) <= both
        # The receiver keeps the listener, and accepts no more.
        control.send(b"s")
        assert control.recv(1) == b"d"
        assert answers(listener, address, True) == {b"sender"}

    def end():
        control.close()
        assert os.waitpid(child, 0)[1] == 0

    if keeps == "both":
        # The receiver ends while clients wait.
        assert answers(listener, address, True, end) == {b"sender"}
        assert answers(listener, address, True) == {b"sender"}
        listener.close()
    else:
        end()
    assert refused(lambda: dial_nobody(address)) == errno.ECONNREFUSED


WAYS = ("fork", "exec", "spawn", "scm", "pidfd")
for way, keeps, calls in itertools.product(
    WAYS,
    ("both", "receiver"),
    ("accepts", "accepts listens", "accepts closes", "keeps"),
):
    if (keeps, calls) == ("receiver", "keeps"):
        continue
    try:
        cell(way, keeps, calls)
    except BaseException as error:
        raise AssertionError(f"{way}, kept by {keeps}, the receiver {calls}") from error
