"""A signal that arrives while a thread polls ends the call as it ends a call that sleeps."""

# The child of this script polls for a millisecond before each sleep. The signal arrives meanwhile.
POLL_US, SIGNAL_AFTER = 1000, 0.0005
TRIES = 9
# A call that the signal does not end ends by this limit, in seconds.
LIMIT = 2

if os.environ.get("OPS_SPIN") != str(POLL_US):
    with open("/proc/self/cmdline", "rb") as words:
        command = [os.fsdecode(word) for word in words.read().split(b"\0")[:-1]]
    os.execve(sys.executable, command, dict(os.environ, OPS_SPIN=str(POLL_US)))


class PollFd(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]


listener = socket.create_server(("127.0.0.1", 0))
peer = socket.create_connection(listener.getsockname())
accepted, _ = listener.accept()
events = ctypes.create_string_buffer(64)


def poll():
    return C.poll(ctypes.byref(PollFd(peer.fileno(), select.POLLIN)), 1, LIMIT * 1000)


def epoll_wait():
    watch = select.epoll()
    watch.register(peer, select.EPOLLIN)
    return C.epoll_wait(watch.fileno(), events, 1, LIMIT * 1000)


def receive():
    return C.recv(peer.fileno(), events, 1, 0)


def receive_within_limit():
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", LIMIT, 0))
    return receive()


def is_ended_by_signal(call, restarts):
    """Makes the call in a process that has not waited yet, so that its first wait polls."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.siginterrupt(signal.SIGALRM, not restarts)
        # The memory of the calls is copied now, because that may take longer than the timer. These
        # calls do not wait.
        C.poll(ctypes.byref(PollFd(peer.fileno(), select.POLLIN)), 1, 0)
        C.epoll_wait(-1, events, 1, 0)
        C.recv(peer.fileno(), events, 1, socket.MSG_DONTWAIT)
        signal.setitimer(signal.ITIMER_REAL, SIGNAL_AFTER)
        os._exit(call() != -1 or ctypes.get_errno() != errno.EINTR)
    try:
        until(lambda: state(child) == "Z", "the call does not end", 0.001)
    except AssertionError:
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1] == 0


DEADLINE = 2 * LIMIT
for call, restarts in (
    (poll, False),
    (poll, True),
    (epoll_wait, True),
    (receive, False),
    (receive_within_limit, True),
):
    # On a busy machine a signal may arrive before its call.
    ended = sum(is_ended_by_signal(call, restarts) for _ in range(TRIES))
    assert ended > TRIES / 3, f"{call.__name__}: {ended} of {TRIES} calls ended"
