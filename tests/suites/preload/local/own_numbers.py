"""While a client is offered over TCP, the files that the program opens get the lowest numbers."""


def connections():
    """The number of established TCP sockets."""
    with open("/proc/self/net/tcp") as table:
        return sum(int(line.split()[3], 16) == 1 for line in list(table)[1:])


def opened():
    number = os.open("/dev/null", os.O_RDONLY)
    os.close(number)
    return number


listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
client.sendall(b"data")
lowest = opened()
until(lambda: connections() == 2, "the client is not offered over TCP")
# The library checks the state of the offer 2 ms later, and then twice as late each time.
others = set()
end = time.monotonic() + 2
while time.monotonic() < end:
    others.update(opened() for _ in range(1000))
assert others == {lowest}, (others, lowest)
peer, _ = listener.accept()
assert is_offloaded(peer) and peer.recv(4) == b"data"
