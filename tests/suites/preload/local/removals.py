"""A removal from an epoll set is made late, and no call shows it. Random calls have the same results for
connections within the host as for socket pairs, whose removals the library passes on at once."""

import random

ADD, DEL, MOD = 1, 2, 3
EDGE, ONE_SHOT, EXCLUSIVE = select.EPOLLET, select.EPOLLONESHOT, select.EPOLLEXCLUSIVE
MASKS = [
    select.EPOLLIN,
    select.EPOLLOUT,
    select.EPOLLIN | select.EPOLLOUT | EDGE,
    select.EPOLLOUT | ONE_SHOT,
    select.EPOLLIN | EXCLUSIVE,
    0,
]
MOST = 16


class Event(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("events", ctypes.c_uint), ("data", ctypes.c_uint64)]


def why():
    return errno.errorcode[ctypes.get_errno()]


def control(set, operation, fd, events=0, data=0):
    event = Event(events & 0xFFFFFFFF, data)
    ctypes.set_errno(0)
    return why() if C.epoll_ctl(set, operation, fd, ctypes.byref(event)) else 0


def ready(set, timeout=0):
    found = (Event * MOST)()
    count = C.epoll_wait(set, found, MOST, timeout)
    return sorted((one.data, one.events) for one in found[:count])


def watched(set):
    """The numbers that the kernel's set watches."""
    with open(f"/proc/self/fdinfo/{set}") as info:
        return [int(line.split()[1]) for line in info if line.startswith("tfd:")]


def local_pair():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dialled = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    assert is_offloaded(dialled)
    return dialled, accepted


class World:
    """The connections and the sets of one kind. Descriptors have indices, which the two worlds share."""

    def __init__(self, pair):
        self.ends = [end for _ in range(3) for end in pair()]
        self.numbers = [end.fileno() for end in self.ends]
        # No connection ends, because a send to a closed peer has another result for TCP.
        self.kept = [os.dup(number) for number in self.numbers]
        self.sets = [C.epoll_create1(0), C.epoll_create(1)]
        self.outer = C.epoll_create1(0)
        for index, set in enumerate(self.sets):
            control(self.outer, ADD, set, select.EPOLLIN, index)

    def close(self):
        for end in self.ends:
            end.detach()
        for number in [*self.numbers, *self.kept, *self.sets, self.outer]:
            os.close(number)

    def control(self, set, operation, index, mask):
        return control(self.sets[set], operation, self.numbers[index], mask, index)

    def exchange(self, set, operation, index, mask):
        """Most event loops do this."""
        return self.control(set, DEL, index, 0), self.control(set, ADD, index, mask)

    def ready(self, set, *_):
        return ready(self.sets[set])

    def ready_by_number(self, set, *_):
        _, number, arguments = wait_calls(self.sets[set])["epoll_wait"]
        return C.syscall(number, *arguments)

    def polled(self, set, *_):
        poll = select.poll()
        poll.register(self.sets[set], select.POLLIN)
        return [events for _, events in poll.poll(0)]

    def selected(self, set, *_):
        return len(select.select([self.sets[set]], [], [], 0)[0])

    def nested(self, *_):
        return ready(self.outer)

    def at_no_address(self, set, operation, index, *_):
        ctypes.set_errno(0)
        return C.epoll_ctl(self.sets[set], operation, self.numbers[index], None), why() if operation != DEL else 0

    def send(self, _set, _operation, index, *_):
        os.write(self.numbers[index], b"x")

    def receive(self, _set, _operation, index, *_):
        try:
            return C.recv(self.numbers[index], ctypes.create_string_buffer(4), 4, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None

    def close_one(self, _set, _operation, index, *_):
        """A duplicate keeps the object, so the sets keep the closed number."""
        other = os.dup(self.numbers[index])
        os.close(self.numbers[index])
        made = fcntl.fcntl(other, fcntl.F_DUPFD_CLOEXEC, self.numbers[index])
        assert made == self.numbers[index]
        os.close(other)

    def replace(self, _set, _operation, index, *_):
        os.dup2(self.numbers[(index + 2) % 6], self.numbers[index])

    def renew_set(self, set, *_):
        number = self.sets[set]
        os.close(number)
        made = C.epoll_create1(0)
        if made != number:
            os.dup2(made, number)
            os.close(made)
        control(self.outer, ADD, number, select.EPOLLIN, set)

    def duplicate_set(self, set, *_):
        number = os.dup(self.sets[set])
        found = ready(number)
        os.close(number)
        return found

    def pass_set(self, set, *_):
        here, there = socket.socketpair()
        socket.send_fds(here, [b"x"], [self.sets[set]])
        _, (number,), *_ = socket.recv_fds(there, 1, 1)
        here.close()
        there.close()
        found = ready(number)
        os.close(number)
        return found

    def child(self, set, *_):
        """The child waits for the same set."""
        readable, writable = os.pipe()
        if os.fork() == 0:
            os.write(writable, repr(ready(self.sets[set])).encode() or b"-")
            os._exit(0)
        os.wait()
        found = os.read(readable, 4096)
        os.close(readable)
        os.close(writable)
        return found


CALLS = (
    [World.control] * 8
    + [World.exchange] * 4
    + [World.ready] * 6
    + [World.send, World.receive] * 2
    + [World.ready_by_number, World.polled, World.selected, World.nested, World.at_no_address]
    + [World.close_one, World.replace, World.renew_set, World.duplicate_set]
)
# Another process has the sets that exist after one of these.
RARE = [World.pass_set, World.child]


def compare(seed):
    choose = random.Random(seed)
    worlds = [World(local_pair), World(socket.socketpair)]
    made = []
    for _ in range(300):
        call = choose.choice(RARE if choose.random() < 0.005 else CALLS)
        arguments = choose.randrange(2), choose.choice((ADD, DEL, DEL, MOD)), choose.randrange(6), choose.choice(MASKS)
        made.append((call.__name__, *arguments))
        local, plain = (call(world, *arguments) for world in worlds)
        assert local == plain, (seed, made[-12:], local, plain)
    for world in worlds:
        world.close()


PAIR = local_pair()
FD = PAIR[0].fileno()
OTHER_SET = C.epoll_create1(0)
PAIR[1].send(b"x")
WAIT = "import select, sys; sys.exit(len(select.epoll.fromfd(int(sys.argv[1])).poll(0)))"
PYTHON = "/usr/bin/python3"


def exchange(set, fd):
    assert control(set, ADD, fd, select.EPOLLIN) == control(set, DEL, fd) == 0


def removed_from(set):
    """Adds the socket, which has an event, and removes it."""
    # Removals of a connection that was also removed last are not deferred.
    exchange(OTHER_SET, PAIR[1].fileno())
    exchange(set, FD)
    return set


def removed():
    """A set from which the socket was removed, as the last call so far."""
    return removed_from(C.epoll_create1(0))


def is_deferred(set):
    """True if the kernel has not seen a removal that has succeeded."""
    return FD in watched(removed_from(set))


def is_passed_on(set):
    """True if removals from the set are not deferred."""
    return not is_deferred(set)


def wait_calls(set):
    """The waits that do not sleep: function, number and arguments. A function ignores the argument that
    only the call by number has."""
    found, zeros, entry = (Event * MOST)(), ctypes.create_string_buffer(16), struct.pack("ihh", set, select.POLLIN, 0)
    bits = ctypes.create_string_buffer(128)
    bits[set // 8] = 1 << set % 8
    return {
        "poll": (C.poll, 7, (entry, 1, 0)),
        "ppoll": (C.ppoll, 271, (entry, 1, zeros, None, 8)),
        "select": (C.select, 23, (set + 1, bits, None, None, zeros)),
        "pselect": (C.pselect, 270, (set + 1, bits, None, None, zeros, None)),
        "epoll_wait": (C.epoll_wait, 232, (set, found, MOST, 0)),
        "epoll_pwait": (C.epoll_pwait, 281, (set, found, MOST, 0, None, 8)),
        "epoll_pwait2": (C.epoll_pwait2, 441, (set, found, MOST, zeros, None, 8)),
    }


def waits():
    """No wait returns the event, by function or by number."""
    set = C.epoll_create1(0)
    for name in wait_calls(set):
        removed_from(set)
        # A call changes its arguments, so each call has its own.
        function, _, arguments = wait_calls(set)[name]
        assert function(*arguments) == 0, name
        removed_from(set)
        _, number, arguments = wait_calls(set)[name]
        assert C.syscall(number, *arguments) == 0, f"{name} by number"


def processes():
    """No other process gets the event, and later removals from its sets are not deferred."""
    arguments = [PYTHON, "-c", WAIT]
    line = f"{PYTHON} -c '{WAIT}' "

    def forked(fork):
        def run(set):
            child = fork()
            if child == 0:
                os._exit(len(ready(set)))
            return os.waitpid(child, 0)[1]

        return run

    def executed(set):
        child = os.fork()
        if child == 0:
            own = removed()
            os.execv(PYTHON, [*arguments, str(own)])
        return os.waitpid(child, 0)[1]

    def spawned(set):
        child = os.posix_spawn(PYTHON, [*arguments, str(set)], os.environ)
        return os.waitpid(child, 0)[1]

    def opened(set):
        return C.pclose(ctypes.c_void_p(C.popen((line + str(set)).encode(), b"r")))

    C.popen.restype = ctypes.c_void_p
    calls = {
        "fork": forked(os.fork),
        "clone": forked(lambda: C.syscall(56, signal.SIGCHLD, None, None, None, None)),
        "vfork": lambda set: subprocess.run([*arguments, str(set)], pass_fds=[set]).returncode,
        "posix_spawn": spawned,
        "system": lambda set: C.system((line + str(set)).encode()),
        "popen": opened,
        "exec": executed,
    }
    for name, call in calls.items():
        set = removed()
        assert call(set) == 0, name
        assert name == "exec" or is_passed_on(set), name


def passing():
    """A set that was passed on, also under the number of one that was closed."""
    here, there = socket.socketpair()
    shared = C.epoll_create1(0)
    socket.send_fds(here, [b"x"], [shared])
    assert is_passed_on(shared)

    def move(number):
        assert fcntl.fcntl(shared, fcntl.F_DUPFD, number) == number

    closers = {
        "close": lambda number: (C.close(number), move(number)),
        "close_range": lambda number: (C.close_range(number, number, 0), move(number)),
        "dup2": lambda number: C.dup2(shared, number),
        "dup3": lambda number: C.dup3(shared, number, 0),
    }
    for name, close in closers.items():
        number = removed()
        close(number)
        assert control(number, ADD, FD, select.EPOLLIN, 1) == 0
        assert ready(number) == [(1, select.EPOLLIN)], f"{name} after a removal"
        assert control(number, DEL, FD) == 0 and is_passed_on(number), name
    here.close()
    there.close()


def replacing():
    """A socket under the number of one that was removed, and that a duplicate keeps."""
    peer = PAIR[1].fileno()
    closers = {
        "close": lambda fd: C.close(fd),
        "close_range": lambda fd: C.close_range(fd, fd, 0),
        "dup2": lambda fd: C.dup2(peer, fd),
        "dup3": lambda fd: C.dup3(peer, fd, 0),
    }
    for name, close in closers.items():
        set, other = C.epoll_create1(0), os.dup(FD)
        assert control(set, ADD, other, select.EPOLLIN) == control(set, DEL, other) == 0
        close(other)
        assert ready(set) == [], name


def threads():
    """Another thread may sleep in a wait, and must not be woken by a socket that was removed."""
    for create in (C.pthread_create, C.thrd_create):
        if os.fork() == 0:
            set = C.epoll_create1(0)
            assert is_deferred(set)
            routine = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _: 0)
            thread = ctypes.c_ulong()
            # Both functions end with the routine and its argument.
            attributes = [None] if create is C.pthread_create else []
            assert create(ctypes.byref(thread), *attributes, routine, None) == 0
            assert is_passed_on(set) and is_passed_on(C.epoll_create1(0))
            os._exit(0)
        assert os.wait()[1] == 0, create.__name__


assert is_deferred(C.epoll_create1(0)) and is_deferred(C.epoll_create(1)), "a removal was not deferred"
for check in (waits, processes, passing, replacing, threads):
    check()
for seed in range(40):
    compare(seed)
compare(random.randrange(1 << 32))
