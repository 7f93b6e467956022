"""Connections within the host: the behaviour of their sockets, and the reasons to stay on TCP."""

TCP = socket.IPPROTO_TCP
SO_TIMESTAMP = 29
SO_ZEROCOPY = 60
TCP_FASTOPEN_CONNECT = 30


def connected(host="127.0.0.1", listening=("127.0.0.1",)):
    with socket.create_server((listening[0], 0)) as listener:
        client = socket.create_connection((host, listener.getsockname()[1]))
        return client, *listener.accept()


def descriptors():
    return set(os.listdir("/proc/self/fd"))


# Each end costs one descriptor.
listener = socket.create_server(("127.0.0.1", 0))
before = descriptors()
client = socket.create_connection(listener.getsockname())
server, peer = listener.accept()
assert is_offloaded(client) and is_offloaded(server)
assert len(descriptors() - before) == 2
assert peer == client.getsockname() == server.getpeername()
assert server.getsockname() == client.getpeername() == listener.getsockname()

# A child sees the addresses of both ends, and so does another program.
child = os.fork()
if child == 0:
    assert server.getpeername() == peer and client.getsockname() == peer
    checks = "import socket as s, sys; n = s.socket(fileno=int(sys.argv[1])).getpeername()"
    checks += f"; assert n[1] == {peer[1]}, n"
    os.set_inheritable(server.fileno(), True)
    os._exit(os.system(f"python3 -c '{checks}' {server.fileno()}") >> 8)
assert os.waitpid(child, 0)[1] == 0

# Options keep their values.
for level, name, value in (
    (TCP, socket.TCP_NODELAY, 1),
    (TCP, socket.TCP_KEEPIDLE, 77),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_IP, socket.IP_TOS, 16),
):
    client.setsockopt(level, name, value)
    assert client.getsockopt(level, name) == value, name
assert client.getsockopt(TCP, socket.TCP_INFO, 104)[0] == 1
try:
    client.connect(listener.getsockname())
    raise AssertionError("connected twice")
except OSError as error:
    assert error.errno == errno.EISCONN, error

# The kernel can splice the sockets.
out, into = os.pipe()
os.write(into, b"spliced")
assert os.splice(out, client.fileno(), 7) == 7
assert os.splice(server.fileno(), into, 7) == 7 and os.read(out, 7) == b"spliced"

# Unread bytes are counted, and the count is zero after a read.
client.sendall(b"12345")
count = fcntl.ioctl(server, termios.FIONREAD, struct.pack("i", 0))
assert struct.unpack("i", count)[0] == 5
assert server.recvfrom(5) == (b"12345", None)
count = fcntl.ioctl(client, termios.TIOCOUTQ, struct.pack("i", 0))
assert struct.unpack("i", count)[0] == 0

# A non-blocking connect is in progress first, and established later.
fast = socket.socket()
fast.setblocking(False)
assert fast.connect_ex(listener.getsockname()) == errno.EINPROGRESS
assert select.select([], [fast], [], DEADLINE)[1] == [fast]
assert fast.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0 and is_offloaded(fast)
listener.accept()[0].close()

# The local ports are outside the range from which the kernel chooses ports for TCP.
with open("/proc/sys/net/ipv4/ip_local_port_range") as chosen:
    lowest, highest = map(int, chosen.read().split())
names = [client.getsockname()]
for _ in range(40):
    more = socket.create_connection(listener.getsockname())
    accepted, name = listener.accept()
    assert is_offloaded(more) and name == more.getsockname() and name not in names
    assert not lowest <= name[1] <= highest, (name, lowest, highest)
    names.append(name)
    more.close()
    accepted.close()

# Other addresses of this host, and a local port that the program has bound.
for host, listening in (("127.0.0.9", "0.0.0.0"), ("::1", "::"), ("::ffff:127.0.0.1", "::")):
    family = socket.AF_INET6 if ":" in listening else socket.AF_INET
    with socket.socket(family) as other:
        other.bind((listening, 0))
        other.listen()
        bound = socket.socket(family)
        with bound:
            bound.bind(("::" if family == socket.AF_INET6 else "127.0.0.1", 0))
            port = bound.getsockname()[1]
            bound.connect((host, other.getsockname()[1]))
            accepted, name = other.accept()
            assert is_offloaded(bound) and name[1] == port, (host, name, port)
            assert accepted.getsockname()[0] == host, accepted.getsockname()
            accepted.close()

# A connection for which the queue has no room waits in TCP's queue.
with socket.socket() as narrow:
    narrow.bind(("127.0.0.1", 0))
    narrow.listen(0)
    first = socket.create_connection(narrow.getsockname())
    second = socket.create_connection(narrow.getsockname())
    assert is_offloaded(first) and not is_offloaded(second)
    for _ in range(2):
        narrow.accept()[0].close()

# Options that only TCP keeps.
for level, name, value in (
    (socket.SOL_SOCKET, SO_ZEROCOPY, 1),
    (socket.SOL_SOCKET, SO_TIMESTAMP, 1),
    (socket.SOL_SOCKET, socket.SO_RCVLOWAT, 5),
    (TCP, TCP_FASTOPEN_CONNECT, 1),
):
    with socket.socket() as special:
        special.setsockopt(level, name, value)
        special.connect(listener.getsockname())
        assert not is_offloaded(special), name
        special.close()

# If another socket has the listener's name, the service is still reachable over TCP.
with socket.socket() as later, socket.socket(socket.AF_UNIX) as taken:
    later.bind(("127.0.0.1", 0))
    service = later.getsockname()
    taken.bind(f"\0ops1at4 127.0.0.1:{service[1]}")
    later.listen()
    with socket.create_connection(service) as plain:
        assert not is_offloaded(plain)
        later.accept()[0].close()

# A peer with a false address is not accepted.
name = f"\0ops1at4 127.0.0.1:{listener.getsockname()[1]}"
for address in ("192.0.2.1:4000", "127.0.0.1:xyz"):
    with socket.socket(socket.AF_UNIX) as false:
        false.bind(f"\0ops1from4 {address} 127.0.0.1:{listener.getsockname()[1]}")
        false.connect(name)
        true = socket.create_connection(listener.getsockname())
        accepted, peer = listener.accept()
        while peer != true.getsockname():
            accepted, peer = listener.accept()
        assert false.recv(1) == b"", "it was accepted"
        true.close()

# A listener of another user is not trusted, and TCP is used at once.
with socket.socket() as later:
    later.bind(("127.0.0.1", 0))
    service = later.getsockname()
    ready, writer = os.pipe()
    stop, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.setresuid(1234, 1234, 1234)
        with socket.socket(socket.AF_UNIX) as taken:
            taken.bind(f"\0ops1at4 127.0.0.1:{service[1]}")
            taken.listen()
            os.write(writer, b".")
            os.read(stop, 1)
        os._exit(0)
    os.read(ready, 1)
    later.listen()
    with socket.create_connection(service) as plain:
        assert not is_offloaded(plain)
        later.accept()[0].close()
    os.close(go)
    os.waitpid(child, 0)
