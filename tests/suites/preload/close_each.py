"""A program that closes every descriptor one by one, those of the library included, and continues: no
thread of the library loops over lost descriptors, and the port mapper's port is free."""


def mapper_answers():
    """True if a process uses the port mapper's port of the address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        try:
            other.bind(("127.0.0.1", 3935))
        except OSError:
            return True
    return False


def exchange():
    """Transfers a message over an offloaded connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        assert is_offloaded(client)
        client.sendall(b"hello")
        assert server.recv(5) == b"hello"


child = os.fork()
if child == 0:
    exchange()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
before = socket.create_server(("127.0.0.1", 0))
# The protocol `local` has no port mapper.
assert mapper_answers() or not ASKS_PEERS
for number in range(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0]):
    try:
        os.close(number)
    except OSError:
        pass
# A thread that waits on a closed descriptor notices this after the wait.
after = socket.create_server(("127.0.0.1", 0))
until(lambda: not mapper_answers(), "the port mapper's port is in use without a port mapper")


def is_idle():
    """True if an idle second costs almost no processor time."""
    begin = time.process_time()
    time.sleep(1)
    return time.process_time() - begin < 0.1


until(is_idle, "an idle process spends processor time")
# New connections use TCP.
client = socket.create_connection(after.getsockname())
server, _ = after.accept()
client.sendall(b"hello")
assert server.recv(5) == b"hello"
