"""Users who bind names and claim addresses that TCP would not give them."""

ATTACKER = 1234


def as_attacker(work):
    """Runs `work` in a child of another user until the result is called."""
    ready, writer = os.pipe()
    stop, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.setresuid(ATTACKER, ATTACKER, ATTACKER)
        kept = work()
        os.write(writer, b".")
        os.read(stop, 1)
        os._exit(0 if kept else 1)
    assert os.read(ready, 1) == b"."

    def end():
        os.close(go)
        assert os.waitpid(child, 0)[1] == 0

    return end


# A service of IPv4 that is not offered, and an attacker who listens at the port for IPv6 alone.
plain = socket.socket()
plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
plain.bind(("0.0.0.0", 0))
plain.listen()
port = plain.getsockname()[1]


def take_over():
    tcp = socket.socket(socket.AF_INET6)
    tcp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    tcp.bind(("::", port))
    tcp.listen()
    names = ("4 127.0.0.1", "4 0.0.0.0", "6 [::]", "6 [::ffff:127.0.0.1]")
    kept = [tcp]
    for name in names:
        taken = socket.socket(socket.AF_UNIX)
        try:
            taken.bind(f"\0ops1at{name}:{port}")
        except OSError as error:
            # The library of this process offers the attacker's own listener by its true name.
            assert error.errno == errno.EADDRINUSE, error
        taken.listen()
        kept.append(taken)
    return kept


end = as_attacker(take_over)
client = socket.create_connection(("127.0.0.1", port))
assert not is_offloaded(client)
assert plain.accept()[1] == client.getsockname()
client.close()
end()

# Claims of addresses that TCP would not show are refused, also where any address may be bound.
service = socket.create_server(("0.0.0.0", 0))
port = service.getsockname()[1]
with open("/proc/sys/net/ipv4/ip_nonlocal_bind", "w") as setting:
    setting.write("1")
tcp = socket.create_connection(("127.0.0.9", port))
assert is_offloaded(tcp)
service.accept()[0].close()
for claim in (
    "4 224.0.0.1:4000 127.0.0.1",
    "4 255.255.255.255:4000 127.0.0.1",
    "4 0.0.0.0:4000 127.0.0.1",
    "4 192.0.2.7:4000 127.0.0.1",
    "4 127.0.0.1:1023 127.0.0.1",
    "4 127.0.0.1:4000 192.0.2.7",
    "6 [::1]:4000 [::1]",
    "6 [::ffff:127.0.0.1]:4000 [::ffff:127.0.0.1]",
):
    with socket.socket(socket.AF_UNIX) as false:
        false.bind(f"\0ops1from{claim}:{port}")
        false.connect(f"\0ops1at4 0.0.0.0:{port}")
        true = socket.create_connection(("127.0.0.1", port))
        accepted, peer = service.accept()
        assert peer == true.getsockname(), (claim, peer)
        assert false.recv(1) == b"", claim
        true.close()
        accepted.close()

# A port of privileged programs is used over TCP.
with socket.socket() as low:
    low.bind(("127.0.0.1", 1022))
    low.connect(("127.0.0.1", port))
    assert not is_offloaded(low)
    assert service.accept()[1] == ("127.0.0.1", 1022)

# An address of the other family fails as over TCP.
with socket.socket(socket.AF_INET6) as only:
    only.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    assert only.connect_ex(("::ffff:127.0.0.1", port)) == errno.ENETUNREACH
