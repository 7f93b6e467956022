"""Sockets with an option that only the kernel's TCP supports stay on TCP."""

CLONE_NEWNET = 0x40000000
TCP_MD5SIG = 14
IPPROTO_MPTCP = 262
HERE, THERE = "192.0.2.1", "192.0.2.2"
NEAR, FAR = "near", "far"


def ip(arguments, network=None):
    enter = ["nsenter", "--net=/proc/%d/ns/net" % network] if network else []
    subprocess.run([*enter, "ip", *arguments.split()], check=True)


def apart(work):
    """Starts a process with its own network at the other end of a cable. Returns its process id, the
    pipe that starts its work, and the pipe with its output."""
    reader, writer = os.pipe()
    goes, go = os.pipe()
    process = os.fork()
    if process == 0:
        signal.alarm(3 * DEADLINE)
        if C.unshare(CLONE_NEWNET) != 0:
            os._exit(9)
        os.write(writer, b"apart")
        os.read(goes, 1)
        try:
            work(writer)
        finally:
            os._exit(0)
    assert os.read(reader, 5) == b"apart"
    ip(f"link add {NEAR} type veth peer name {FAR} netns {process}")
    for device, address, network in ((NEAR, HERE, None), (FAR, THERE, process)):
        ip(f"address add {address}/24 dev {device}", network)
        ip(f"link set {device} up", network)
    ip("link set lo up", process)
    return process, go, reader


def signature(to):
    """`struct tcp_md5sig` for a peer."""
    address = struct.pack("=H2s4s120s", socket.AF_INET, b"", socket.inet_aton(to), b"")
    return struct.pack("=128sBBHi80s", address, 0, 0, 3, 0, b"key")


def bind_to_device(one, device):
    one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())


def mark(one):
    one.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, 7)


OPTIONS = {
    "device": lambda one: bind_to_device(one, "lo"),
    "mark": mark,
    "signature": lambda one: one.setsockopt(
        socket.IPPROTO_TCP, TCP_MD5SIG, signature("127.0.0.1")
    ),
}


def stays(name, prepare):
    """Connects a socket with an option to a plain listener, and a plain socket to a listener with it."""
    # TCP does not answer a peer with another key or without a key.
    patience = 1 if name == "signature" else DEADLINE
    with socket.create_server(("127.0.0.1", 0)) as plain:
        client = socket.socket()
        try:
            prepare(client)
        except OSError as error:
            print(name, "cannot be set here:", error)
            client.close()
            return
        client.settimeout(patience)
        try:
            client.connect(plain.getsockname())
        except TimeoutError:
            # The plain listener has no key.
            assert name == "signature", name
        assert not is_offloaded(client), name
        client.close()
    listener = socket.socket()
    prepare(listener)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    client = socket.socket()
    client.settimeout(patience)
    try:
        client.connect(listener.getsockname())
    except TimeoutError:
        assert name == "signature", name
    assert not is_offloaded(client), name
    client.close()
    listener.close()


def knocks(writer):
    """Reports if the service at the other end accepts a client of this network."""
    with socket.socket() as here:
        here.settimeout(DEADLINE)
        try:
            here.connect((HERE, port))
            os.write(writer, b"in" + (b" offloaded" if is_offloaded(here) else b""))
        except ConnectionRefusedError:
            os.write(writer, b"refused")


# A listener that is bound to one device does not accept clients over another device.
listener = socket.socket()
bind_to_device(listener, "lo")
listener.bind(("0.0.0.0", 0))
port = listener.getsockname()[1]
process, go, reader = apart(knocks)
listener.listen()
os.write(go, b"x")
said = os.read(reader, 99)
assert said == b"refused", said
os.waitpid(process, 0)

# A socket without these options is offloaded.
with socket.create_server(("127.0.0.1", 0)) as plain, socket.socket() as client:
    client.connect(plain.getsockname())
    assert is_offloaded(client)

# A socket of Multipath TCP is not offloaded.
try:
    several = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP)
except OSError as error:
    print("no MPTCP here:", error)
else:
    with socket.create_server(("127.0.0.1", 0)) as plain:
        several.connect(plain.getsockname())
        assert not is_offloaded(several)

# The key is last, because a process that has used a key stays on TCP.
for name, prepare in OPTIONS.items():
    stays(name, prepare)
