"""A program that closes every number one by one, but those of its own sockets, closes no descriptor of
the library: its connections and listeners continue, and so do the port mapper and new connections."""


def mapper_answers():
    """True if a process uses the port mapper's port of the address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        try:
            other.bind(("127.0.0.1", 3935))
        except OSError:
            return True
    return False


def exchange(client, server):
    """Transfers a message over an offloaded connection."""
    assert is_offloaded(client) and is_offloaded(server)
    client.sendall(b"hello")
    assert server.recv(5) == b"hello"


def connect(listener):
    client = socket.create_connection(listener.getsockname(), timeout=DEADLINE)
    return client, listener.accept()[0]


def close_each(*kept):
    """Closes all numbers but those of some sockets."""
    numbers = {sock.fileno() for sock in kept}
    for number in range(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0]):
        if number not in numbers:
            try:
                os.close(number)
            except OSError as error:
                assert error.errno == errno.EBADF


def is_idle():
    """True if an idle second costs almost no processor time."""
    begin = time.process_time()
    time.sleep(1)
    return time.process_time() - begin < 0.1


SYS_CLOSE = 3 if os.uname().machine == "x86_64" else 57
CLOSES = {
    "close": lambda number: C.close(number),
    "__close": lambda number: C.__close(number),
    "syscall": lambda number: C.syscall(SYS_CLOSE, number),
}

listener = socket.create_server(("127.0.0.1", 0))
before = connect(listener)
close_each(listener, *before)
own = sorted(int(name) for name in os.listdir("/proc/self/fd"))[-1]
assert own > listener.fileno(), "the library has no descriptor"
for name, close in CLOSES.items():
    assert close(own) == -1 and ctypes.get_errno() == errno.EBADF, name
exchange(*before)
# The protocol `local` has no port mapper.
assert mapper_answers() or not ASKS_PEERS
exchange(*connect(listener))
with socket.create_server(("127.0.0.1", 0)) as other:
    exchange(*connect(other))

# A child that closes each number still serves the listener.
child = os.fork()
if child == 0:
    close_each(listener)
    if os.fork() == 0:
        with socket.create_connection(listener.getsockname(), timeout=DEADLINE) as client:
            client.sendall(b"hello")
            assert client.recv(5) == b"hello"
        os._exit(0)
    served = listener.accept()[0]
    assert is_offloaded(served)
    served.sendall(served.recv(5))
    os._exit(0 if os.wait()[1] == 0 else 1)
assert os.waitpid(child, 0)[1] == 0
until(is_idle, "an idle process spends processor time")

# A file of the program that has the number of a former descriptor of the library can be closed.
null = os.open("/dev/null", os.O_RDONLY)
os.dup2(null, own)
assert os.path.sameopenfile(null, own)
os.close(own)
assert not os.path.exists(f"/proc/self/fd/{own}")
