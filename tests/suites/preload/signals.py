"""Signals during blocking calls: an offloaded socket behaves like a TCP socket.

The interpreter repeats interrupted calls, so the script calls the C library's functions directly.
"""

import contextlib

ROOM = ctypes.create_string_buffer(1 << 20)
HUGE = ctypes.create_string_buffer(64 << 20)


def call(function, *arguments):
    """The result, or the name of the error."""
    result = getattr(C, function)(*arguments)
    return result if result >= 0 else errno.errorcode[ctypes.get_errno()]


class Scene:
    """A connection, a listener without a client, and the actions that complete a call."""

    def __init__(self, host):
        self.listener = socket.create_server((host, 0))
        self.dialled = socket.create_connection(self.listener.getsockname())
        self.accepted = self.listener.accept()[0]
        self.more = []
        self.is_over = threading.Event()

    def feed(self):
        self.accepted.sendall(b"x" * 10)

    def dial(self):
        self.more.append(socket.create_connection(self.listener.getsockname()))

    def leave_no_room(self):
        fill(self.dialled)

    def send_some(self):
        self.accepted.sendall(b"12345")
        assert select.select([self.dialled], [], [], DEADLINE)[0]

    def drain(self):
        """Reads until the call has returned."""
        self.accepted.settimeout(0.2)
        while not self.is_over.is_set():
            with contextlib.suppress(TimeoutError):
                self.accepted.recv(1 << 20)

    def close(self):
        for sock in (self.listener, self.dialled, self.accepted, *self.more):
            sock.close()


def receive(scene):
    return call("recv", scene.dialled.fileno(), ROOM, 10, 0)


def read(scene):
    return call("read", scene.dialled.fileno(), ROOM, 10)


def receive_with_a_limit(scene):
    limit = struct.pack("ll", DEADLINE, 0)
    scene.dialled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    return receive(scene)


def receive_all(scene):
    return call("recv", scene.dialled.fileno(), ROOM, 15, socket.MSG_WAITALL)


def send_into_full_buffers(scene):
    sent = call("send", scene.dialled.fileno(), ROOM, 1 << 20, 0)
    return sent if isinstance(sent, str) else "some"


def send_more_than_buffers_take(scene):
    sent = call("send", scene.dialled.fileno(), HUGE, len(HUGE), 0)
    return sent if isinstance(sent, str) else "some" if sent < len(HUGE) else "all"


def accept(scene):
    number = call("accept", scene.listener.fileno(), None, None)
    if isinstance(number, str):
        return number
    os.close(number)
    return "accepted"


def accept_with_a_limit(scene):
    limit = struct.pack("ll", DEADLINE, 0)
    scene.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    return accept(scene)


def poll(scene):
    entry = ctypes.create_string_buffer(struct.pack("ihh", scene.dialled.fileno(), 1, 0), 8)
    return call("poll", entry, 1, DEADLINE * 1000)


def epoll(scene):
    with select.epoll() as registered:
        registered.register(scene.dialled, select.EPOLLIN)
        return call("epoll_wait", registered.fileno(), ROOM, 1, DEADLINE * 1000)


CASES = [
    (receive, Scene.feed),
    (read, Scene.feed),
    (receive_with_a_limit, Scene.feed),
    (receive_all, Scene.feed),
    (send_into_full_buffers, Scene.drain),
    (send_more_than_buffers_take, Scene.drain),
    (accept, Scene.dial),
    (accept_with_a_limit, Scene.dial),
    (poll, Scene.feed),
    (epoll, Scene.feed),
]
# The actions before the call.
BEFORE = {receive_all: Scene.send_some, send_into_full_buffers: Scene.leave_no_room}


def outcome(host, made, finish, restarts):
    """The result of a call that is interrupted by a signal and then completed."""
    scene = Scene(host)
    BEFORE.get(made, lambda _: None)(scene)
    handled = []
    signal.signal(signal.SIGALRM, lambda *_: handled.append(1))
    signal.siginterrupt(signal.SIGALRM, not restarts)

    def disturb():
        until_asleep(os.getpid(), checks=30, pause=0.002)
        os.kill(os.getpid(), signal.SIGALRM)
        until_asleep(os.getpid(), checks=30, pause=0.002)
        finish(scene)

    disturbing = threading.Thread(target=disturb)
    disturbing.start()
    result = made(scene)
    scene.is_over.set()
    disturbing.join()
    scene.close()
    assert handled, "no signal was handled"
    return result


def broken_pipe(host, flags):
    """The results of two sends after a reset, and the number of SIGPIPE signals."""
    scene = Scene(host)
    raised = []
    signal.signal(signal.SIGPIPE, lambda *_: raised.append(1))
    scene.accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    scene.accepted.close()
    broken = select.poll()
    broken.register(scene.dialled, 0)
    assert broken.poll(DEADLINE * 1000), "no reset"
    first = call("send", scene.dialled.fileno(), ROOM, 10, flags)
    second = call("send", scene.dialled.fileno(), ROOM, 10, flags)
    scene.close()
    return first, second, len(raised)


for made, finish in CASES:
    for restarts in (False, True):
        offloaded, tcp = (outcome(h, made, finish, restarts) for h in ("127.0.0.1", "127.0.0.2"))
        assert offloaded == tcp, (made.__name__, restarts, offloaded, tcp)
for host in ("127.0.0.1", "127.0.0.2"):
    scene = Scene(host)
    limit = struct.pack("ll", 0, 50000)
    scene.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    assert accept(scene) == "EAGAIN", host
    scene.close()
# The kernel's Unix sockets have no reset without unread bytes.
for flags in () if LOCAL else (0, socket.MSG_NOSIGNAL):
    offloaded, tcp = (broken_pipe(host, flags) for host in ("127.0.0.1", "127.0.0.2"))
    assert offloaded == tcp, (flags, offloaded, tcp)
