"""A client checks only from time to time if a TCP service is offered, and notices an offer soon."""

SERVE = """
import socket
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    while True:
        listener.accept()[0].close()
"""

plain = {key: text for key, text in os.environ.items() if key != "LD_PRELOAD"}
server = subprocess.Popen([sys.executable, "-c", SERVE], env=plain, stdout=subprocess.PIPE)
port = int(server.stdout.readline())


def carried():
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as client:
        return is_offloaded(client)


for _ in range(20):
    assert not carried(), "offloaded to a service that has no library"
# A datagram socket of the same address is not handled as a TCP socket.
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
    datagrams.connect(("127.0.0.1", port))
    assert datagrams.getpeername() == ("127.0.0.1", port)
# A connected socket cannot be connected again.
with socket.create_connection(("127.0.0.1", port)) as client:
    try:
        client.connect(("127.0.0.1", port))
        raise AssertionError("connected twice")
    except OSError as error:
        assert error.errno == 106, error

server.kill()
server.wait()
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", port))
listener.listen()
until(carried, "the service is offered, and the client does not notice")
