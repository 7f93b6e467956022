"""Two protocols offer one listener: peers over both protocols and over TCP wait in one queue."""

KINDS = ("local", "sdp", "tcp")
EACH = 3

DIAL = """
import socket, sys
dialled = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60)
dialled.sendall(sys.argv[2].encode())
assert dialled.recv(20).decode() == "hello " + sys.argv[2]
"""

if "RULES_listen" not in os.environ:
    # Runs the script again with other rules, because a process reads the rules once.
    with tempfile.TemporaryDirectory() as directory:
        environment = {key: text for key, text in os.environ.items() if key != "OPS_SOFTWARE"}
        lines = {kind: f"use {kind} connect * *:*" for kind in KINDS}
        lines["sdp"] += " within=20s"
        lines["listen"] = "use both listen * *:* protocol=local,sdp"
        for name, line in lines.items():
            environment["RULES_" + name] = os.path.join(directory, name)
            with open(environment["RULES_" + name], "w") as file:
                file.write(line + "\n")
        environment["OPS_RULES"] = environment["RULES_listen"]
        raise SystemExit(subprocess.run(sys.orig_argv, env=environment).returncode)


def client(kind, port):
    environment = dict(os.environ, OPS_RULES=os.environ["RULES_" + kind])
    return subprocess.Popen([sys.executable, "-c", DIAL, str(port), kind], env=environment)


def kind_of(sock):
    number = os.readlink(f"/proc/self/fd/{sock.fileno()}")[len("socket:[") : -1]
    with open("/proc/self/net/unix") as sockets:
        for line in sockets:
            if line.split()[6] == number:
                # A connection of `local` has a name; a pair has none.
                return "local" if len(line.split()) > 7 else "sdp"
    return "tcp"


def serve(listener, wait):
    """Accepts until each client is served, and checks the transport of each client."""
    port = listener.getsockname()[1]
    clients = [client(kind, port) for kind in KINDS * EACH]
    accepted_kinds = []
    while len(accepted_kinds) < len(clients):
        wait()
        try:
            peer, address = listener.accept()
        except BlockingIOError:
            continue
        assert address[0] == "127.0.0.1"
        peer.settimeout(DEADLINE)
        kind = peer.recv(20).decode()
        assert kind == kind_of(peer), f"a client of {kind} connected by {kind_of(peer)}"
        peer.sendall(b"hello " + kind.encode())
        accepted_kinds.append(kind)
        peer.close()
    assert all(one.wait() == 0 for one in clients)
    assert sorted(accepted_kinds) == sorted(KINDS * EACH), accepted_kinds


def with_poll(listener):
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    return lambda: poll.poll(1000 * DEADLINE)


def with_select(listener):
    return lambda: select.select([listener], [], [], DEADLINE)


def with_epoll(flags):
    def make(listener):
        epoll = select.epoll()
        epoll.register(listener, select.EPOLLIN | flags)
        return lambda: epoll.poll(DEADLINE if not flags & select.EPOLLET else 0.05)

    return make


WAITS = (
    with_poll,
    with_select,
    with_epoll(0),
    with_epoll(select.EPOLLEXCLUSIVE),
    with_epoll(select.EPOLLET),
)
for make in WAITS:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        serve(listener, make(listener))

# A blocking accept waits for clients of all kinds.
with socket.create_server(("127.0.0.1", 0)) as listener:
    serve(listener, lambda: None)

# A worker has inherited the listener; each way of waiting has a listener of its own.
for make in (with_poll, with_epoll(select.EPOLLEXCLUSIVE)):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        worker = os.fork()
        if worker == 0:
            serve(listener, make(listener))
            os._exit(0)
        assert os.waitpid(worker, 0)[1] == 0

# The process that listened has ended: its child offers the service again, over TCP, too.
served, result = os.pipe()
if os.fork() == 0:
    os.close(served)
    listener = socket.create_server(("127.0.0.1", 0))
    maker = os.getpid()
    if os.fork() != 0:
        os._exit(0)
    until(lambda: os.getppid() != maker, "the process that listened does not end")
    # An accept detects this. Peers that have connected meanwhile are on TCP.
    listener.setblocking(False)
    try:
        listener.accept()
    except BlockingIOError:
        pass
    listener.setblocking(True)
    serve(listener, lambda: None)
    os.write(result, b"served")
    os._exit(0)
os.close(result)
assert os.read(served, 10) == b"served", "nobody serves where the process that listened is gone"

# Another program gets the listener by exec, and offers the service of the protocol again.
EXECUTED = """
listener = socket.socket(fileno=int(os.environ["LISTENER"]))
listener.setblocking(False)
wait = with_epoll(0)(listener)
listener.setblocking(True)
serve(listener, wait)
"""
listener = socket.create_server(("127.0.0.1", 0))
listener.set_inheritable(True)
definitions = sys.orig_argv[-1].split("WAITS = (")[0]
program = [sys.executable, "-c", definitions + EXECUTED]
executed = os.fork()
if executed == 0:
    os.execve(sys.executable, program, dict(os.environ, LISTENER=str(listener.fileno())))
listener.close()
assert os.waitpid(executed, 0)[1] == 0, "a program that got its listener by exec"

# A listener that was shut down accepts no client over any transport.
listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
listener.shutdown(socket.SHUT_RDWR)
clients = [client(kind, port) for kind in KINDS]
assert all(one.wait() != 0 for one in clients), "a listener that was shut down let somebody in"
