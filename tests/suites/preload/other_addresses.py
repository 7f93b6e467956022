"""Connections between addresses that are not loopback addresses are offloaded, too."""

ADDRESSES = ("192.0.2.1", "2001:db8::1")
SIOCGIFADDR = 0x8915


# Added before the first socket, because the port mapper notices new addresses a moment later.
for address in ADDRESSES:
    add_loopback_address(address, 128 if ":" in address else 32)

for address in ADDRESSES:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for place in (address, "::" if ":" in address else "0.0.0.0"):
        with socket.create_server((place, 0), family=family) as listener:
            client = socket.create_connection((address, listener.getsockname()[1]))
            server, peer = listener.accept()
            assert is_offloaded(client) and is_offloaded(server), (address, place)
            assert peer[0] == address, peer
            assert server.getsockname()[0] == address, server.getsockname()
            # Programs read the addresses of interfaces by the socket that they have.
            request = struct.pack("40s", b"lo")
            for one in (client, server) if family == socket.AF_INET else ():
                answer = fcntl.ioctl(one, SIOCGIFADDR, request)
                assert socket.inet_ntoa(answer[20:24]) == "127.0.0.1", answer
            client.sendall(b"ping")
            assert server.recv(4) == b"ping"
            client.close()
            server.close()
