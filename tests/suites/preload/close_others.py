"""A program that puts files of its own under the numbers of the library loses the descriptors next to
its listeners. The listeners then accept over TCP, and the program's files stay open."""

LIMIT = 1024
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, hard))
CLIENT = """
import socket, sys
client = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60)
assert client.recv(5) == b"hello"
"""


def start_client(listener):
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    port = str(listener.getsockname()[1])
    words = [sys.executable, "-c", CLIENT, port]
    return os.posix_spawn(sys.executable, words, plain)


def serve(listener, wait):
    child = start_client(listener)
    wait(listener)
    server = listener.accept()[0]
    server.sendall(b"hello")
    server.close()
    assert os.waitpid(child, 0)[1] == 0


def by_poll(listener):
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    assert waiting.poll() == [(listener.fileno(), select.POLLIN)]


def by_select(listener):
    assert select.select([listener], [], [])[0] == [listener]


def by_epoll(listener):
    with select.epoll() as waiting:
        waiting.register(listener, select.EPOLLIN)
        assert waiting.poll() == [(listener.fileno(), select.EPOLLIN)]


# The library is at work before the program closes its descriptors.
with socket.create_server(("127.0.0.1", 0)) as listener:
    with socket.create_connection(listener.getsockname()) as client:
        server = listener.accept()[0]
        client.sendall(b"x")
        assert server.recv(1) == b"x"
        server.close()

WAITS = (by_poll, by_select, by_epoll, lambda listener: None)
listeners = [socket.create_server(("127.0.0.1", 0)) for _ in WAITS]
closed = [number for number in map(int, os.listdir("/proc/self/fd")) if number >= LIMIT * 3 // 4]
assert closed, "the library has no descriptor here"
# Closes each number, past the table in which the library looks its own numbers up.
null = os.open("/dev/null", os.O_RDONLY)
for number in closed:
    os.dup2(null, number)

for listener, wait in zip(listeners, WAITS):
    for _ in range(2):
        serve(listener, wait)
    listener.close()
for number in closed:
    assert os.path.sameopenfile(number, null), number


def is_idle():
    """True if an idle second costs almost no processor time."""
    begin = time.process_time()
    time.sleep(1)
    return time.process_time() - begin < 0.1


until(is_idle, "a thread of the library loops over lost descriptors")
# The program can close all of them, and then the port mapper's port is free.
for number in closed:
    os.close(number)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mapper:
    mapper.bind(("127.0.0.1", 3935))
