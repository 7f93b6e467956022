"""Two listeners share an address, like a server and its replacement: when one listener is closed, peers
can still find the other listener, in one process and across processes."""

if not ASKS_PEERS:
    # With `local`, an address has one listener, and no port mapper is asked.
    raise SystemExit(0)


def listener(port=0):
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", port))
    made.listen()
    made.settimeout(DEADLINE)
    return made


def exchanges_with(server):
    client = socket.create_connection(server.getsockname())
    client.settimeout(DEADLINE)
    accepted, _ = server.accept()
    assert is_offloaded(client) and is_offloaded(accepted), "it is a TCP connection"
    client.sendall(b"hello")
    assert accepted.recv(5) == b"hello"
    client.close()
    accepted.close()


for closes_first in (True, False):
    first = listener()
    second = listener(first.getsockname()[1])
    gone, stays = (first, second) if closes_first else (second, first)
    gone.close()
    exchanges_with(stays)
    stays.close()

# The same with two processes: the newer listener ends, and the older listener is found again.
stays = listener()
_, port = stays.getsockname()
child = os.fork()
if child == 0:
    stays.close()
    listener(port).close()
    os._exit(0)
os.waitpid(child, 0)
exchanges_with(stays)
