"""A connect without blocking returns at once, although the peer's process does not run. The socket
then behaves like a TCP socket that connects."""

NODELAY = socket.IPPROTO_TCP, socket.TCP_NODELAY


def answers_queries(process):
    """Returns true if the process answers the queries for the services of the host, at UDP port 3935."""
    with open("/proc/net/udp") as lines:
        fields = [line.split() for line in lines]
    sockets = {f"socket:[{field[9]}]" for field in fields if field[1].endswith(":0F5F")}
    for number in os.listdir(f"/proc/{process}/fd"):
        try:
            if os.readlink(f"/proc/{process}/fd/{number}") in sockets:
                return True
        except FileNotFoundError:
            pass  # Closed meanwhile.
    return False


def announcing_thread(process):
    """The thread that announces the services of a process, or `None`."""
    for thread in os.listdir(f"/proc/{process}/task"):
        with open(f"/proc/{process}/task/{thread}/comm") as comm:
            if comm.read() == "ops-portmap\n":
                return thread
    return None


class Server:
    """A process that listens, and that this process stops and continues."""

    def __init__(self, answers):
        """With `answers`, the queries for its service are answered while it is stopped."""
        # The first process with a service answers the queries for all processes of the host. It stops a
        # moment after its last service has ended.
        self.first = socket.create_server(("127.0.0.1", 0)) if answers else None
        until(lambda: answers_queries(os.getpid()) == answers, "this process is not in its role")
        ports, port = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            listener = socket.create_server(("127.0.0.1", 0))
            os.write(port, struct.pack("i", listener.getsockname()[1]))
            while True:
                peer, _ = listener.accept()
                if data := peer.recv(100):
                    peer.sendall(data + b" back")
                peer.close()
        self.address = "127.0.0.1", struct.unpack("i", os.read(ports, 4))[0]
        os.close(ports)
        os.close(port)
        # A service is announced a moment after its socket listens. The thread sleeps afterwards.
        until(lambda: answers or answers_queries(self.process), "the server does not answer")
        until(lambda: announcing_thread(self.process), "no thread announces the service")
        until_asleep(f"{self.process}/task/{announcing_thread(self.process)}")

    def __enter__(self):
        os.kill(self.process, signal.SIGSTOP)
        until(lambda: state(self.process) == "T", "not stopped")
        return self

    def go_on(self):
        os.kill(self.process, signal.SIGCONT)

    def __exit__(self, *_):
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        if self.first:
            self.first.close()


def dial(server):
    """Begins to connect, and returns the socket, and a set that watched it before and reports nothing."""
    client = socket.socket()
    client.setblocking(False)
    watch = select.epoll()
    watch.register(client, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP)
    assert client.connect_ex(server.address) == errno.EINPROGRESS
    assert watch.poll(0) == []
    return client, watch


def exchange(client):
    client.setblocking(True)
    client.sendall(b"there")
    got = b""
    while data := client.recv(100):
        got += data
    assert got == b"there back", got


def connected(client, watch):
    assert watch.poll(DEADLINE) == [(client.fileno(), select.EPOLLOUT)]
    assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    assert client.getpeername() == server.address
    assert is_offloaded(client)


for answers in (True, False):
    # Calls on a socket that connects, and afterwards.
    with Server(answers) as server:
        client, watch = dial(server)
        watch.modify(client, select.EPOLLOUT)
        assert client.connect_ex(server.address) == errno.EALREADY
        assert refused(lambda: client.send(b"x")) == errno.EAGAIN
        assert refused(lambda: client.recv(1)) == errno.EAGAIN
        assert refused(client.getpeername) == errno.ENOTCONN
        assert refused(lambda: client.bind(("127.0.0.1", 0))) == errno.EINVAL
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_INET
        assert client.getsockopt(*NODELAY) == 0
        client.setsockopt(*NODELAY, 1)
        assert select.select([client], [client], [client], 0) == ([], [], [])
        server.go_on()
        connected(client, watch)
        assert client.getsockopt(*NODELAY) == 1
        # The result is returned once.
        assert client.connect_ex(server.address) == 0
        assert client.connect_ex(server.address) == errno.EISCONN
        exchange(client)

    # A closed socket is no peer.
    with Server(answers) as server:
        for close in (socket.socket.close, lambda it: os.dup2(watch.fileno(), it.detach())):
            client, watch = dial(server)
            close(client)
        server.go_on()
        exchange(socket.create_connection(server.address))

    # Calls that need the connection wait for it.
    for wait in (
        exchange,
        lambda client: exchange(client.dup()),
        lambda client: client.shutdown(socket.SHUT_WR),
        lambda client: os.waitpid(os.fork() or os._exit(0), 0),
    ):
        with Server(answers) as server:
            later = subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -CONT {server.process}"])
            with socket.socket() as client:
                client.setblocking(False)
                assert client.connect_ex(server.address) == errno.EINPROGRESS
                wait(client)
                assert is_offloaded(client)
            later.wait()

    # If the peer ends meanwhile, TCP is refused or reset.
    with Server(answers) as server:
        client, watch = dial(server)
    ((_, seen),) = watch.poll(DEADLINE)
    assert seen & select.EPOLLERR and seen & select.EPOLLHUP, seen
    seen = client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    assert seen in (errno.ECONNREFUSED, errno.ECONNRESET), seen
    assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    client.close()

# The first connect of a program returns before its adapter is open: the provider is a FIFO, which the
# loader opens only when a writer does. Then the provider is empty, and TCP connects.
FIRST = """
import errno, select, signal, socket, sys, time
signal.alarm(int(sys.argv[3]))
client = socket.socket()
client.setblocking(False)
assert client.connect_ex(("127.0.0.1", int(sys.argv[1]))) == errno.EINPROGRESS
# By the next call the loader is locked, so the library must know the C library's functions.
time.sleep(0.2)
waits = select.poll()
waits.register(client, select.POLLOUT)
assert waits.poll(0) == []
open(sys.argv[2], "wb").close()
assert waits.poll() == [(client.fileno(), select.POLLOUT)]
assert client.getpeername()[1] == int(sys.argv[1])
"""
with tempfile.TemporaryDirectory() as directory, Server(True) as server:
    fifo, registry = f"{directory}/fifo.so", f"{directory}/dat.conf"
    os.mkfifo(fifo)
    with open(registry, "w") as file:
        file.write(f'iwarp-fifo u2.0 nonthreadsafe default {fifo} dat-rs.1.0 "lo 0 sockets=any" ""\n')
    words = [sys.executable, "-c", FIRST, str(server.address[1]), fifo, str(DEADLINE)]
    subprocess.run(words, env=dict(os.environ, DAT_OVERRIDE=registry), check=True)


def can_take(number, own):
    """Makes a number refer to a socket. Fails while another thread opens a file at the number."""
    try:
        os.dup2(own.fileno(), number)
        return True
    except OSError as error:
        assert error.errno == errno.EBUSY, error
        return False


# A program uses all numbers for a socket of its own while a socket connects. The options of its socket stay.
for answers in (True, False):
    with Server(answers) as server:
        child = os.fork()
        if child == 0:
            client, _ = dial(server)
            own = socket.socket()
            for number in map(int, os.listdir("/proc/self/fd")):
                if number > 2 and number not in (client.fileno(), own.fileno()):
                    until(lambda: can_take(number, own), "a number is never free")
            assert refused(lambda: client.setsockopt(*NODELAY, 1)) == errno.EBADF
            client.close()
            assert own.getsockopt(*NODELAY) == 0
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
