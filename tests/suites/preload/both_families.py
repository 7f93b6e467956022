"""A listener at the unspecified IPv6 address. With IPV6_V6ONLY it serves IPv6 only, and another listener
may serve IPv4 at the port. Otherwise one listener serves offloaded and plain peers of both families."""

DIAL = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=40) as dialled:
    dialled.sendall(sys.argv[3].encode())
    print(dialled.recv(9).decode())
"""
PLAIN = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def dial(host, port, name, environment):
    command = [sys.executable, "-c", DIAL, host, str(port), name]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def listen(family, port, only=False):
    sock = socket.socket(family)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
    sock.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", port))
    sock.listen()
    sock.settimeout(40)
    return sock


def served(listener, hosts):
    """Serves peers of all hosts, with and without the library. Only those with it are offloaded."""
    port = listener.getsockname()[1]
    peers = {
        f"{host} {kind}": dial(host, port, f"{host} {kind}", environment)
        for host in hosts
        for kind, environment in (("plain", PLAIN), ("offloaded", os.environ))
    }
    for _ in peers:
        sock, address = listener.accept()
        name = sock.recv(99).decode()
        host, kind = name.split()
        mapped = f"::ffff:{host}" if listener.family == socket.AF_INET6 else host
        assert address[0] == (host if ":" in host else mapped), (address, name)
        assert sock.getpeername()[:2] == address[:2] and sock.family == listener.family
        assert is_offloaded(sock) == (kind == "offloaded"), name
        sock.sendall(b"served")
        sock.close()
    for name, peer in peers.items():
        assert peer.communicate()[0] == "served\n", name


both = listen(socket.AF_INET6, 0)
served(both, ["127.0.0.1", "::1"])
both.close()

only6 = listen(socket.AF_INET6, 0, only=True)
port = only6.getsockname()[1]
served(only6, ["::1"])
for environment in (PLAIN, os.environ):
    assert dial("127.0.0.1", port, "a client", environment).wait() != 0
only4 = listen(socket.AF_INET, port)
served(only4, ["127.0.0.1"])
served(only6, ["::1"])
only6.close()
for environment in (PLAIN, os.environ):
    assert dial("::1", port, "a client", environment).wait() != 0
served(only4, ["127.0.0.1"])
