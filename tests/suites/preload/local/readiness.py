"""Every event of `poll`, `select` and `epoll` is that of TCP, in every state of both directions.

A state is a sequence of calls of both ends. Each is made on a connection within the host and on a connection
of the kernel's TCP, and both are asked in every way for every event."""

import itertools

HOSTS = ("127.0.0.1", "127.0.0.2")
WR, RD = socket.SHUT_WR, socket.SHUT_RD
EVENTS = {
    "IN": select.POLLIN,
    "PRI": select.POLLPRI,
    "OUT": select.POLLOUT,
    "RDNORM": select.POLLRDNORM,
    "RDBAND": select.POLLRDBAND,
    "WRNORM": select.POLLWRNORM,
    "WRBAND": select.POLLWRBAND,
    "RDHUP": select.POLLRDHUP,
}
INTERESTS = [0, *EVENTS.values(), select.POLLIN | select.POLLPRI | select.POLLOUT | select.POLLRDHUP]
INTERESTS.append(sum(EVENTS.values()))
ET, ONESHOT, EXCLUSIVE = select.EPOLLET, select.EPOLLONESHOT, select.EPOLLEXCLUSIVE
MODES = {"level": 0, "edge": ET, "once": ONESHOT, "edge, once": ET | ONESHOT}
# The kernel permits no other event with EPOLLEXCLUSIVE.
WITH_EXCLUSIVE = select.EPOLLIN | select.EPOLLOUT
NO_TIME = (ctypes.c_long * 2)(0, 0)


class PollFd(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]


class Event(ctypes.Structure):
    _pack_ = 1 if os.uname().machine == "x86_64" else 8
    _fields_ = [("events", ctypes.c_uint32), ("data", ctypes.c_uint64)]


def pair(host):
    with socket.create_server((host, 0)) as listener:
        dialled = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    assert is_offloaded(dialled) == (host == HOSTS[0])
    return dialled, accepted


def polled(fd, events, timeout=0):
    entry = PollFd(fd, events, 0)
    count = C.poll(ctypes.byref(entry), 1, timeout)
    assert count == (entry.revents != 0), (count, entry.revents)
    return entry.revents


def ppolled(fd, events):
    entry = PollFd(fd, events, 0)
    count = C.ppoll(ctypes.byref(entry), ctypes.c_ulong(1), NO_TIME, None)
    assert count == (entry.revents != 0), (count, entry.revents)
    return entry.revents


def polled_by_number(fd, events):
    entry = PollFd(fd, events, 0)
    count = C.syscall(7, ctypes.byref(entry), 1, 0)
    assert count == (entry.revents != 0), (count, entry.revents)
    return entry.revents


def selected(fd, call):
    sets = [(ctypes.c_ulong * 16)() for _ in range(3)]
    for one in sets:
        one[fd // 64] |= 1 << fd % 64
    count = call(fd + 1, *sets)
    ready = tuple(bool(one[fd // 64] >> fd % 64 & 1) for one in sets)
    assert count == sum(ready)
    return ready


def wait(epoll, how):
    event = Event()
    at = ctypes.byref(event)
    count = {
        "wait": lambda: C.epoll_wait(epoll, at, 1, 0),
        "pwait": lambda: C.epoll_pwait(epoll, at, 1, 0, None),
        "pwait2": lambda: C.epoll_pwait2(epoll, at, 1, NO_TIME, None),
        "number": lambda: C.syscall(232, epoll, at, 1, 0),
    }[how]()
    assert count in (0, 1) and (count == 0 or event.data == DATA), (how, count, event.data)
    return event.events if count else 0


DATA = 0x7F00_1234_5678


def register(epoll, fd, events, operation=1):
    event = Event(events & 0xFFFFFFFF, DATA)
    assert C.epoll_ctl(epoll, operation, fd, ctypes.byref(event)) == 0, errno.errorcode[ctypes.get_errno()]


def by_sets(fd, interest):
    """The events by each kind of set, by the first wait and by a second one."""
    found = {}
    waits = itertools.cycle(["wait", "pwait", "pwait2", "number"])
    modes = [(name, interest | flag) for name, flag in MODES.items()]
    if interest & ~WITH_EXCLUSIVE == 0:
        modes.append(("exclusive", interest | EXCLUSIVE))
    for name, events in modes:
        epoll = C.epoll_create1(0)
        register(epoll, fd, events)
        found[name] = [wait(epoll, next(waits)) for _ in range(2)]
        os.close(epoll)
    return found


def shown(sock):
    """All events that a socket shows, by every way to ask."""
    fd = sock.fileno()
    found = {
        "select": selected(fd, lambda *sets: C.select(*sets, (ctypes.c_long * 2)(0, 0))),
        "pselect": selected(fd, lambda *sets: C.pselect(*sets, NO_TIME, None)),
    }
    for interest in INTERESTS:
        found["poll", interest] = polled(fd, interest)
        found["ppoll", interest] = ppolled(fd, interest)
        if os.uname().machine == "x86_64":
            found["by number", interest] = polled_by_number(fd, interest)
        for name, events in by_sets(fd, interest).items():
            found[name, interest] = events
    return found


# The steps: each takes this end, the other end, and the process that holds the other end too.
def send(sock, text):
    try:
        sock.send(text, socket.MSG_DONTWAIT)
    except OSError as error:
        return error.errno


def receive(here, _):
    try:
        return here.recv(1 << 20, socket.MSG_DONTWAIT)
    except OSError as error:
        return error.errno


def take_error(here, _):
    return here.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def end(how, of):
    def shut_down(*ends):
        try:
            ends[of].shutdown(how)
        except OSError as error:
            return error.errno

    return shut_down


def fill_up(here, _):
    fill(here)


def drain(here, there):
    """The peer reads until this end is writable."""
    while not polled(here.fileno(), select.POLLOUT):
        there.recv(1 << 20)


def die(_, there):
    """A process that holds the other end is killed."""
    child = os.fork()
    if child == 0:
        signal.pause()
    there.close()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


STEPS = {
    "fills": fill_up,
    "sends": lambda here, there: send(here, b"to the peer"),
    "ends sending": end(WR, 0),
    "ends receiving": end(RD, 0),
    "ends both": end(socket.SHUT_RDWR, 0),
    "receives": receive,
    "takes the error": take_error,
    "the peer sends": lambda here, there: send(there, b"from the peer"),
    "the peer ends sending": end(WR, 1),
    "the peer ends receiving": end(RD, 1),
    "the peer ends both": end(socket.SHUT_RDWR, 1),
    "the peer drains": drain,
    "the peer receives": lambda here, there: receive(there, here),
    "the peer closes": lambda here, there: there.close(),
    "the peer is killed": die,
}
OWN = ["sends", "ends sending", "ends receiving", "ends both", "receives", "takes the error"]
PEERS = [name for name in STEPS if name.startswith("the peer") and name != "the peer drains"]
# A full buffer: opsrun(1) names its end, after which TCP shows it as writable.
FULL = [
    ("fills",),
    ("fills", "the peer drains"),
    ("fills", "the peer ends sending"),
    ("fills", "the peer sends"),
    ("fills", "the peer closes"),
    ("fills", "the peer closes", "takes the error"),
    ("fills", "the peer is killed"),
]
LAST = ("the peer closes", "the peer is killed")


def is_permitted(steps):
    """False for sequences that repeat an end, that use a closed end, or whose result opsrun(1) names: an end
    of receiving refuses the bytes of the other end, which TCP accepts."""
    for at, step in enumerate(steps):
        before = steps[:at]
        if any(last in before for last in LAST) and step in PEERS:
            return False
        if step.startswith(("ends", "the peer ends", "the peer is")) and step in before:
            return False
        ended = {"sends": "the peer ends ", "the peer sends": "ends "}.get(step, "-")
        if any(ended + what in before for what in ("receiving", "both")):
            return False
        # The two kinds of sockets name this error differently: TCP forgets a reset after an end.
        if step == "takes the error" and "the peer ends sending" in before:
            return False
        # Bytes that arrive after both directions have ended reset a connection of TCP.
        is_over = any(f"{whose}ends both" in before for whose in ("", "the peer "))
        if step in ("sends", "the peer sends") and is_over:
            return False
    return True


def sequences():
    yield from FULL
    for length in range(3):
        yield from filter(is_permitted, itertools.permutations(OWN + PEERS, length))
    # What follows the end of the connection, and what precedes it.
    for last in LAST:
        for other in itertools.permutations(OWN, 2):
            for order in ((last, *other), (other[0], last, other[1])):
                if is_permitted(order):
                    yield order
    # All orders of the ends of both directions, with bytes, and what follows.
    for order in itertools.permutations(("ends sending", "the peer sends", "the peer closes")):
        for after in itertools.product(OWN, repeat=2):
            if is_permitted(order + after):
                yield order + after


def differences(steps):
    """The events that differ, once both connections have been given time to agree."""
    ends = [pair(host) for host in HOSTS]
    try:
        for step in steps:
            results = [STEPS[step](*each) for each in ends]
        limit = time.monotonic() + 2
        while True:
            local, tcp = (shown(here) for here, _ in ends)
            differ = {way: (local[way], tcp[way]) for way in local if local[way] != tcp[way]}
            if not differ or time.monotonic() > limit:
                return differ
    finally:
        for each in itertools.chain(*ends):
            each.close()


signal.signal(signal.SIGPIPE, signal.SIG_IGN)
wrong = []
count = 0
for steps in sequences():
    count += 1
    if differ := differences(steps):
        wrong.append(f"{steps}: {len(differ)} differ, such as {list(differ.items())[:3]}")
        if len(wrong) == 12:
            break
assert not wrong, "\n".join(wrong)
assert count > 200, count
