"""A signal handler uses the descriptor that the interrupted thread was about to use: neither blocks
the other."""

C.signal.restype = ctypes.c_void_p
NO_SUCH_HALF = 77


class Interval(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("every", "every_us", "first", "first_us")]


listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
assert is_offloaded(client)
# The handler is a function of the C library. Its argument is the signal's number, which it uses as a
# descriptor.
fd = os.dup2(client.fileno(), signal.SIGALRM)
C.signal(signal.SIGALRM, ctypes.cast(C.shutdown, ctypes.c_void_p))
every = Interval(0, 50, 0, 50)
C.setitimer(0, ctypes.byref(every), None)
end = time.monotonic() + 3
while time.monotonic() < end:
    for _ in range(1000):
        C.shutdown(fd, NO_SUCH_HALF)
C.setitimer(0, ctypes.byref(Interval(0, 0, 0, 0)), None)
client.sendall(b"still there")
assert server.recv(20) == b"still there"
