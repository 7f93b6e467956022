"""A process that has accepted a connection executes another program: all written bytes are received,
and then the peer and the new program see that the connection is broken. A failed exec changes
nothing."""

if LOCAL:
    # The connection is a socket of the kernel, which the new program continues to use.
    raise SystemExit(0)

NEW_PROGRAM = """
import errno, os, sys
number, unread = int(sys.argv[2]), sys.argv[3].encode()
def read():
    try:
        return os.read(number, 100)
    except ConnectionResetError:
        return None
got = read()
# After the dup2 to standard input, the descriptor carries the bytes itself, so bytes that were received
# before the exec can be read, as with TCP.
if number == 0 and got and got == unread:
    got = read()
assert got is None, got
assert os.read(number, 100) == b""
try:
    os.write(number, b"z")
    raise AssertionError("written")
except BrokenPipeError:
    pass
os.write(int(sys.argv[1]), b"well")
"""
plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
DATA = os.urandom(400000)
UNREAD = b" than it reads"


def accept_and_exec(listener, result, environment, unread, number):
    peer = listener.accept()[0]
    assert is_offloaded(peer)
    # The first attempts to execute the program fail.
    for _ in range(3):
        try:
            os.execve("/nowhere/program", ["program"], environment)
        except FileNotFoundError:
            pass
    poll = select.poll()
    poll.register(peer, select.POLLIN)
    assert poll.poll(DEADLINE * 1000) and receive(peer, 5) == b"hello"
    peer.sendall(DATA)
    if unread:
        assert receive(peer, 4) == b"more"
        assert poll.poll(DEADLINE * 1000)
    os.dup2(peer.fileno(), number)
    peer.close()
    os.set_inheritable(result, True)
    arguments = [str(result), str(number), UNREAD.decode() if unread else ""]
    os.execve(sys.executable, [sys.executable, "-c", NEW_PROGRAM, *arguments], environment)


for unread, number in ((False, 0), (True, 0), (False, 99), (True, 99)):
    for environment in (plain, dict(os.environ)):
        results, result = os.pipe()
        ports, port = os.pipe()

        def serve():
            listener = socket.create_server(("127.0.0.1", 0))
            os.write(port, str(listener.getsockname()[1]).encode())
            accept_and_exec(listener, result, environment, unread, number)

        server = forked(serve)
        service = "127.0.0.1", int(os.read(ports, 5))
        with socket.create_connection(service) as client:
            assert is_offloaded(client)
            client.sendall(b"hello")
            assert receive(client, len(DATA)) == DATA
            if unread:
                client.sendall(b"more" + UNREAD)
            try:
                assert not client.recv(1), "bytes that no process sent"
                raise AssertionError("no reset")
            except ConnectionResetError:
                pass
        ended(server)
        assert os.read(results, 9) == b"well"

# If exec fails, bytes that are received meanwhile are still reported.
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
peer = listener.accept()[0]
watching = select.epoll()
watching.register(peer, select.EPOLLIN | select.EPOLLET)
execl = C.execl


def execl_from_c(program, arguments):
    assert execl(program.encode(), arguments[0].encode(), None) == -1
    raise FileNotFoundError


for call in (os.execv, os.execvp, execl_from_c):
    try:
        call("/nowhere/program", ["program"])
    except FileNotFoundError:
        pass
    client.sendall(b"now")
    assert watching.poll(DEADLINE), call
    assert receive(peer, 3) == b"now"
