"""A listener with `O_ASYNC` sends a signal for a client within the host, as for a client over TCP."""

SIGNAL = signal.SIGRTMIN + 2


class Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


def signalled(which=SIGNAL, within=DEADLINE):
    """The descriptor in the next signal, or `None`."""
    mask = (ctypes.c_ulong * 16)(1 << which - 1)
    info = ctypes.create_string_buffer(128)
    if C.sigtimedwait(mask, info, ctypes.byref(Time(int(within), int(within % 1 * 1e9)))) < 0:
        return None
    return struct.unpack_from("i", info, 24)[0]


def enable(listener):
    fcntl.fcntl(listener, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(listener, fcntl.F_SETSIG, SIGNAL)
    flags = fcntl.fcntl(listener, fcntl.F_GETFL)
    fcntl.fcntl(listener, fcntl.F_SETFL, flags | os.O_ASYNC)


def play(listener, host, which=SIGNAL):
    address = (host, listener.getsockname()[1])
    with socket.create_connection(address) as client:
        assert is_offloaded(client) == (host == "127.0.0.1")
        assert signalled(which) == listener.fileno()
        listener.accept()[0].close()
    while signalled(which, 0.1) is not None:
        pass


signal.pthread_sigmask(signal.SIG_BLOCK, [SIGNAL, signal.SIGIO])
before = socket.socket()
before.bind(("0.0.0.0", 0))
enable(before)
before.listen()
after = socket.create_server(("0.0.0.0", 0))
enable(after)
for listener in (before, after):
    while signalled(within=0.1) is not None:
        pass
    for host in ("127.0.0.1", "127.0.0.2"):
        play(listener, host)
    assert fcntl.fcntl(listener, fcntl.F_GETFL) & os.O_NONBLOCK == 0

# The signal is changed, and then turned off.
fcntl.fcntl(after, fcntl.F_SETSIG, signal.SIGIO)
play(after, "127.0.0.1", signal.SIGIO)
fcntl.fcntl(after, fcntl.F_SETFL, 0)
with socket.create_connection(("127.0.0.1", after.getsockname()[1])):
    after.accept()[0].close()
    assert signalled(signal.SIGIO, 0.1) is None
