"""Every call that a program may make on a connected socket, on an offloaded connection and on a TCP
connection: results, error numbers and bytes are equal."""

import array

HELLO = b"hello world"
SIOCATMARK, SIOCOUTQNSD = 0x8905, 0x894B
MSG_WAITFORONE, MSG_MORE, MSG_CMSG_CLOEXEC = 0x10000, 0x8000, 0x40000000
RWF_NOWAIT, F_SETSIG, F_GETSIG = 8, 10, 11
S_IFSOCK = 0o140000
SYS = {"read": 0, "write": 1, "sendto": 44, "recvfrom": 45, "sendmsg": 46, "recvmsg": 47}
SYS |= {"readv": 19, "writev": 20, "dup": 32, "fcntl": 72, "dup3": 292}
# With this set, calls that have a number are made by number.
BY_NUMBER = globals().get("BY_NUMBER", False)
NUMBERS = SYS | {"close": 3, "poll": 7, "ioctl": 16, "select": 23, "dup2": 33, "sendfile": 40}
NUMBERS |= {"connect": 42, "accept": 43, "shutdown": 48, "bind": 49, "listen": 50}
NUMBERS |= {"getsockname": 51, "getpeername": 52, "setsockopt": 54, "getsockopt": 55}
NUMBERS |= {"epoll_wait": 232, "splice": 275, "epoll_pwait": 281, "accept4": 288}
NUMBERS |= {"recvmmsg": 299, "sendmmsg": 307, "close_range": 436, "epoll_pwait2": 441}
NUMBERS |= {"send": SYS["sendto"], "recv": SYS["recvfrom"], "preadv2": 327, "pwritev2": 328}

# Calls that differ within the host: the kernel's Unix sockets have no reset, and also count bytes
# after the mark.
OF_KERNEL = set()
if LOCAL:
    OF_KERNEL = {"recvmmsg of an error", "an urgent byte"}


class AioCb(ctypes.Structure):
    _fields_ = [
        ("fildes", ctypes.c_int),
        ("opcode", ctypes.c_int),
        ("prio", ctypes.c_int),
        ("buf", ctypes.c_void_p),
        ("nbytes", ctypes.c_size_t),
        ("rest", ctypes.c_char * 512),
    ]


def call(name, *arguments):
    """The result of a C function, or the name of its error."""
    if BY_NUMBER and name in NUMBERS:
        name, arguments = "syscall", (NUMBERS[name], *as_system_call(name, arguments))
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    ctypes.set_errno(0)
    result = getattr(C, name)(*words)
    return result if result >= 0 else errno.errorcode[ctypes.get_errno()]


def as_system_call(name, arguments):
    """The arguments of the system call: the C library adds some to its own arguments."""
    if name in ("send", "recv"):
        return *arguments, None, 0 if name == "send" else None
    if name in ("preadv2", "pwritev2"):
        return *arguments[:4], 0, arguments[4]
    return *arguments, *(0,) * (6 - len(arguments))


def buffer(size=64, fill=b"\0"):
    return ctypes.create_string_buffer(fill * size, size)


def vector(*parts):
    return (IoVec * len(parts))(
        *(IoVec(ctypes.cast(part, ctypes.c_void_p), ctypes.sizeof(part)) for part in parts)
    )


def text(data):
    return ctypes.create_string_buffer(data, len(data))


def message(*parts, name=None, control=None):
    iov = vector(*parts)
    header = MsgHdr(iov=iov, iovlen=len(parts))
    if name is not None:
        header.name, header.namelen = ctypes.cast(name, ctypes.c_void_p), ctypes.sizeof(name)
    if control is not None:
        header.control = ctypes.cast(control, ctypes.c_void_p)
        header.controllen = ctypes.sizeof(control)
    header.kept = (iov, parts, name, control)
    return header


def messages(*headers):
    all_of_them = (MMsgHdr * len(headers))()
    for one, header in zip(all_of_them, headers):
        one.hdr = header
    all_of_them.kept = headers
    return all_of_them


def connected(host):
    with socket.create_server((host, 0)) as listener:
        dialled = socket.create_connection(listener.getsockname())
        accepted = listener.accept()[0]
    for sock in dialled, accepted:
        assert is_offloaded(sock) == (host == "127.0.0.1"), (host, sock)
        # A wait without a result ends with an error.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("=qq", DEADLINE, 0))
    return dialled, accepted


def arrived(sock, count):
    """Waits until `count` bytes can be read."""
    unread = array.array("i", [0])

    def are_there():
        fcntl.ioctl(sock, termios.FIONREAD, unread)
        return unread[0] >= count

    until(are_there, f"{count} bytes do not arrive", 0.001)


def drain(sock, count):
    got = b""
    while len(got) < count:
        more = sock.recv(count - len(got))
        if not more:
            break
        got += more
    return got


ROWS = {}


def row(name, *, hello=False):
    """Registers a call on end `a`; with `hello`, end `b` has sent `hello` before."""

    def enter(work):
        def run(host):
            a, b = connected(host)
            with a, b:
                if hello:
                    b.sendall(HELLO)
                    arrived(a, len(HELLO))
                return work(a, b)

        assert name not in ROWS, name
        ROWS[name] = run

    return enter


def sends(name, work):
    @row(name)
    def run(a, b):
        b.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        sent = work(a.fileno())
        return sent, drain(b, sent if isinstance(sent, int) and sent > 0 else 0)


def receives(name, work):
    @row(name, hello=True)
    def run(a, b):
        result = work(a.fileno())
        a.setblocking(False)
        try:
            rest = a.recv(64)
        except BlockingIOError:
            rest = None
        return result, rest


def answers(name, work):
    @row(name)
    def run(a, b):
        return work(a)


FILES = []


def file_with(data):
    """A file that stays open until the script ends."""
    file = tempfile.TemporaryFile()
    FILES.append(file)
    file.write(data)
    file.flush()
    file.seek(0)
    return file


def got(function, fd, *arguments, into=None, size=5):
    into = into or buffer(size)
    result = call(function, fd, into, size, *arguments)
    return result, into.raw


# Sending.
five = text(b"fiver")
for name in ("write", "__write"):
    sends(name, lambda fd, name=name: call(name, fd, five, 5))
for flags in (0, MSG_MORE, socket.MSG_NOSIGNAL, socket.MSG_DONTWAIT, socket.MSG_OOB, 0x40000):
    for name in ("send", "__send"):
        sends(f"{name} {flags:#x}", lambda fd, n=name, f=flags: call(n, fd, five, 5, f))
sends("write nothing", lambda fd: call("write", fd, five, 0))
sends("write null", lambda fd: call("write", fd, None, 5))
sends("send null", lambda fd: call("send", fd, None, 5, 0))
sends("sendto", lambda fd: call("sendto", fd, five, 5, 0, None, 0))
sends(
    "sendto another address",
    lambda fd: call("sendto", fd, five, 5, 0, text(b"\2\0" + bytes(14)), 16),
)
sends("writev", lambda fd: call("writev", fd, vector(five, text(b"and"), text(b"more")), 3))
sends("writev nothing", lambda fd: call("writev", fd, vector(five), 0))
sends("writev too much", lambda fd: call("writev", fd, (IoVec * 1025)(), 1025))
sends("writev of no bytes", lambda fd: call("writev", fd, vector(buffer(0)), 1))
sends("writev negative", lambda fd: call("writev", fd, vector(five), -1))
sends("sendmsg", lambda fd: call("sendmsg", fd, ctypes.byref(message(five, five)), 0))
sends("sendmsg null", lambda fd: call("sendmsg", fd, None, 0))
rights = text(struct.pack("=QiiI", 20, socket.SOL_SOCKET, socket.SCM_RIGHTS, 0) + bytes(4))
sends(
    "sendmsg with a descriptor",
    lambda fd: call("sendmsg", fd, ctypes.byref(message(five, control=rights)), 0),
)


@row("sendmmsg")
def _(a, b):
    both = messages(message(five), message(five, five))
    sent = call("sendmmsg", a.fileno(), both, 2, 0)
    return sent, [one.len for one in both], drain(b, 15)


@row("sending after the end")
def _(a, b):
    a.shutdown(socket.SHUT_WR)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    fd = a.fileno()
    result = [call("write", fd, five, 0), call("write", fd, None, 5), call("send", fd, None, 5, 1)]
    result += [call("writev", fd, vector(five), 0), call("writev", fd, vector(buffer(0)), 1)]
    result += [call("sendmsg", fd, ctypes.byref(message()), 0), call("sendmmsg", fd, None, 0, 0)]
    return result


answers("sendmmsg of none", lambda sock: call("sendmmsg", sock.fileno(), None, 0, 0))
answers("sendmmsg null", lambda sock: call("sendmmsg", sock.fileno(), None, 1, 0))
for name in ("pwrite", "pwrite64"):
    sends(name, lambda fd, name=name: call(name, fd, five, 5, 0))
for name in ("pwritev", "pwritev64"):
    sends(name, lambda fd, name=name: call(name, fd, vector(five), 1, 0))
for name in ("pwritev2", "pwritev64v2"):
    for at in (-1, 0, -2):
        sends(f"{name} {at}", lambda fd, n=name, at=at: call(n, fd, vector(five), 1, at, 0))
sends("dprintf", lambda fd: call("dprintf", fd, b"%d and %s", 7, b"more"))
for number in ("write", "sendto"):
    arguments = (0, None, 0) if number == "sendto" else ()
    sends(
        f"syscall {number}",
        lambda fd, n=number, rest=arguments: call("syscall", SYS[n], fd, five, 5, *rest),
    )
sends("syscall writev", lambda fd: call("syscall", SYS["writev"], fd, vector(five), 1))
sends(
    "syscall sendmsg",
    lambda fd: call("syscall", SYS["sendmsg"], fd, ctypes.byref(message(five)), 0),
)

# From files and pipes.
for name in ("sendfile", "sendfile64"):
    sends(name, lambda fd, name=name: call(name, fd, file_with(HELLO).fileno(), None, 20))

    @row(f"{name} from an offset")
    def _(a, b, name=name):
        file, at = file_with(HELLO), ctypes.c_long(6)
        sent = call(name, a.fileno(), file.fileno(), ctypes.byref(at), 3)
        return sent, at.value, file.tell(), drain(b, 3)

    receives(
        f"{name} from a socket",
        lambda fd, name=name: call(name, file_with(b"").fileno(), fd, None, 5),
    )
sends("sendfile from nothing", lambda fd: call("sendfile", fd, -1, None, 5))


@row("splice from a pipe")
def _(a, b):
    out, into = os.pipe()
    os.write(into, HELLO)
    return call("splice", out, None, a.fileno(), None, 64, 0)


@row("splice into a pipe", hello=True)
def _(a, b):
    out, into = os.pipe()
    return call("splice", a.fileno(), None, into, None, 64, 0)


answers("splice from nothing", lambda s: call("splice", -1, None, s.fileno(), None, 5, 0))
answers("splice into nothing", lambda s: call("splice", s.fileno(), None, -1, None, 5, 0))
answers("tee", lambda sock: call("tee", sock.fileno(), os.pipe()[1], 5, 0))
answers("tee into it", lambda sock: call("tee", os.pipe()[0], sock.fileno(), 5, 0))
answers("vmsplice", lambda sock: call("vmsplice", sock.fileno(), vector(five), 1, 0))
answers(
    "copy_file_range",
    lambda sock: call(
        "copy_file_range", file_with(HELLO).fileno(), None, sock.fileno(), None, 5, 0
    ),
)

# Receiving.
for name in ("read", "__read"):
    receives(name, lambda fd, name=name: got(name, fd))
receives("read much", lambda fd: got("read", fd, size=64))
receives("read nothing", lambda fd: got("read", fd, size=0, into=buffer(5)))
receives("read null", lambda fd: call("read", fd, None, 5))
receives("recv null", lambda fd: call("recv", fd, None, 5, 0))
receives("__read_chk", lambda fd: got("__read_chk", fd, 64))
for flags in (0, socket.MSG_PEEK, socket.MSG_WAITALL, socket.MSG_TRUNC, socket.MSG_DONTWAIT):
    receives(f"recv {flags:#x}", lambda fd, flags=flags: got("recv", fd, flags))
    receives(f"__recv_chk {flags:#x}", lambda fd, flags=flags: got("__recv_chk", fd, 64, flags))
for flags in (socket.MSG_TRUNC, socket.MSG_TRUNC | socket.MSG_PEEK, socket.MSG_PEEK):
    receives(f"recv null {flags:#x}", lambda fd, flags=flags: call("recv", fd, None, 5, flags))
receives("recv out of band, null", lambda fd: call("recv", fd, None, 5, socket.MSG_OOB))
receives("recv of no bytes", lambda fd: got("recv", fd, 0, size=0, into=buffer(5)))
receives("recv out of band", lambda fd: got("recv", fd, socket.MSG_OOB))
receives("recv of errors", lambda fd: got("recv", fd, socket.MSG_ERRQUEUE))
receives("recv of errors, now", lambda fd: got("recv", fd, socket.MSG_ERRQUEUE | 0x40))
for name, checked in (("recvfrom", ()), ("__recvfrom_chk", (64,))):
    receives(name, lambda fd, n=name, c=checked: got(n, fd, *c, 0, None, None))

    @row(f"{name} whom", hello=True)
    def _(a, b, name=name, checked=checked):
        whom, size = buffer(16, b"x"), ctypes.c_uint(16)
        result = got(name, a.fileno(), *checked, 0, whom, ctypes.byref(size))
        return result, whom.raw, size.value


def received(function, fd, *arguments):
    parts = buffer(3), buffer(4)
    result = call(function, fd, vector(*parts), 2, *arguments)
    return result, [part.raw for part in parts]


receives("readv", lambda fd: received("readv", fd))
receives("readv nothing", lambda fd: call("readv", fd, vector(buffer(0)), 1))
for name in ("preadv", "preadv64"):
    receives(name, lambda fd, name=name: received(name, fd, 0))
for name in ("preadv2", "preadv64v2"):
    for at, flags in ((-1, 0), (-1, RWF_NOWAIT), (0, 0), (-2, 0), (-1, 0x1000)):
        receives(
            f"{name} {at} {flags}",
            lambda fd, n=name, at=at, flags=flags: received(n, fd, at, flags),
        )
for name in ("pread", "pread64"):
    receives(name, lambda fd, name=name: got(name, fd, 0))
receives("__pread_chk", lambda fd: got("__pread_chk", fd, 0, 64))
receives("syscall read", lambda fd: call("syscall", SYS["read"], fd, buffer(), 5))
receives("syscall readv", lambda fd: call("syscall", SYS["readv"], fd, vector(buffer(3)), 1))
receives(
    "syscall recvfrom",
    lambda fd: call("syscall", SYS["recvfrom"], fd, buffer(), 5, socket.MSG_PEEK, None, None),
)
for flags in (0, socket.MSG_PEEK, socket.MSG_TRUNC, MSG_CMSG_CLOEXEC):

    @row(f"recvmsg {flags:#x}", hello=True)
    def _(a, b, flags=flags):
        part, name, control = buffer(5), buffer(16, b"x"), buffer(64, b"x")
        header = message(part, name=name, control=control)
        result = call("recvmsg", a.fileno(), ctypes.byref(header), flags)
        return result, part.raw, header.namelen, header.controllen, header.flags, name.raw


receives("recvmsg null", lambda fd: call("recvmsg", fd, None, 0))
receives(
    "syscall recvmsg",
    lambda fd: call("syscall", SYS["recvmsg"], fd, ctypes.byref(message(buffer(5))), 0),
)
for flags in (MSG_WAITFORONE, socket.MSG_DONTWAIT):

    @row(f"recvmmsg {flags:#x}", hello=True)
    def _(a, b, flags=flags):
        parts = buffer(5), buffer(5), buffer(5), buffer(5)
        all_of_them = messages(*(message(part) for part in parts))
        result = call("recvmmsg", a.fileno(), all_of_them, 4, flags, None)
        return result, [one.len for one in all_of_them], [part.raw for part in parts]


receives("recvmmsg of none", lambda fd: call("recvmmsg", fd, None, 0, 0, None))
receives("recvmmsg null", lambda fd: call("recvmmsg", fd, None, 1, 0, None))


# Receiving when there are no bytes, and at the end of the stream.
def receive_nothing(sock):
    fd, now = sock.fileno(), socket.MSG_DONTWAIT
    return [
        got("recv", fd, now),
        got("recv", fd, now, size=0, into=buffer(5)),
        call("recv", fd, None, 5, now),
        call("recv", fd, None, 5, now | socket.MSG_TRUNC),
        call("recv", fd, None, 5, now | socket.MSG_PEEK),
        call("recvmsg", fd, ctypes.byref(message()), now),
        call("recvmsg", fd, ctypes.byref(message(buffer(0))), now),
        call("read", fd, None, 0),
        call("readv", fd, vector(buffer(0)), 1),
        call("readv", fd, vector(buffer(5)), 0),
    ]


for limit in ((0, 0), (3, 0), (-1, 0), (0, 1000000000), (0, -1)):

    @row(f"recvmmsg within {limit}", hello=True)
    def _(a, b, limit=limit):
        parts = buffer(5), buffer(5), buffer(5), buffer(5)
        all_of_them = messages(*(message(part) for part in parts))
        left = (ctypes.c_long * 2)(*limit)
        flags = MSG_WAITFORONE if limit[0] else 0
        result = call("recvmmsg", a.fileno(), all_of_them, 4, flags, left)
        return result, [part.raw for part in parts], left[0], left[1] if limit != (3, 0) else 0


@row("recvmmsg of an error")
def _(a, b):
    b.sendall(HELLO)
    arrived(a, len(HELLO))
    b.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    b.close()
    poll = select.poll()
    poll.register(a, select.POLLRDHUP)
    assert poll.poll(DEADLINE * 1000)
    both = messages(message(buffer(5)), message(buffer(64)))
    result = [call("recvmmsg", a.fileno(), both, 2, socket.MSG_DONTWAIT, None)]
    return result + [call("recvmmsg", a.fileno(), both, 2, socket.MSG_DONTWAIT, None)]


answers("recv of nothing", receive_nothing)


@row("recv at the end")
def _(a, b):
    b.close()
    assert a.recv(1) == b""
    return receive_nothing(a)


# Asynchronously.
for name, data in (("aio_write", HELLO), ("aio_read", None)):
    for suffix in ("", "64"):

        @row(name + suffix, hello=data is None)
        def _(a, b, name=name + suffix, data=data):
            part = text(data) if data else buffer(5)
            block = AioCb(fildes=a.fileno(), nbytes=ctypes.sizeof(part))
            block.buf = ctypes.cast(part, ctypes.c_void_p)
            begun = call(name, ctypes.byref(block))
            is_over = lambda: C.aio_error(ctypes.byref(block)) != errno.EINPROGRESS
            until(is_over, "the call still runs", 0.001)
            done = C.aio_return(ctypes.byref(block))
            return begun, done, part.raw, drain(b, done) if data else drain(a, 6)


# Names, options, requests.
def named(function, sock, size):
    name, len_ = buffer(32, b"x"), ctypes.c_int(size)
    result = call(function, sock.fileno(), name, ctypes.byref(len_))
    # Port and address differ between the connections.
    return result, len_.value, name.raw[:2], name.raw[max(0, min(size, 8)) :]


for name in ("getsockname", "getpeername"):
    for size in (16, 4, 0, 32, -1):
        answers(f"{name} {size}", lambda sock, n=name, size=size: named(n, sock, size))
    answers(f"{name} null", lambda sock, n=name: call(n, sock.fileno(), None, None))
    answers(
        f"{name} into null",
        lambda sock, n=name: call(n, sock.fileno(), None, ctypes.byref(ctypes.c_int(16))),
    )


def option(sock, level, name, size):
    value, len_ = buffer(16, b"x"), ctypes.c_int(size)
    result = call("getsockopt", sock.fileno(), level, name, value, ctypes.byref(len_))
    return result, len_.value, value.raw


for name in ("SO_ERROR", "SO_TYPE", "SO_DOMAIN", "SO_PROTOCOL", "SO_ACCEPTCONN", "SO_LINGER"):
    for size in (4, 2, 0, 16, -1):
        answers(
            f"getsockopt {name} {size}",
            lambda sock, n=getattr(socket, name), size=size: option(sock, 1, n, size),
        )
for arguments in ((None, 4), (text(bytes(4)), 2), (text(bytes(4)), 4), (text(bytes(4)), -1)):
    answers(
        f"setsockopt {arguments[0] and 4} {arguments[1]}",
        lambda sock, rest=arguments: call("setsockopt", sock.fileno(), 1, socket.SO_LINGER, *rest),
    )


def asked(sock, request):
    number = ctypes.c_int(77)
    return call("ioctl", sock.fileno(), request, ctypes.byref(number)), number.value


REQUESTS = {
    "FIONREAD": termios.FIONREAD,
    "SIOCATMARK": SIOCATMARK,
    "SIOCOUTQ": termios.TIOCOUTQ,
    "SIOCOUTQNSD": SIOCOUTQNSD,
    "FIONBIO": termios.FIONBIO,
    "FIOASYNC": termios.FIOASYNC,
    "TIOCGWINSZ": termios.TIOCGWINSZ,
}
for name, request in REQUESTS.items():
    answers(f"ioctl {name}", lambda sock, request=request: asked(sock, request))
    row(f"ioctl {name} with bytes", hello=True)(lambda a, b, r=request: asked(a, r))
    answers(f"ioctl {name} null", lambda sock, r=request: call("ioctl", sock.fileno(), r, None))
answers("sockatmark", lambda sock: call("sockatmark", sock.fileno()))
answers("isfdtype", lambda sock: call("isfdtype", sock.fileno(), S_IFSOCK))


@row("an urgent byte")
def _(a, b):
    b.send(b"ab", socket.MSG_OOB)
    b.send(b"cd")
    poll = select.poll()
    poll.register(a, select.POLLPRI)
    shown = poll.poll(DEADLINE * 1000)[0][1]
    arrived(a, 1)
    # Bytes after the mark are not counted before the mark.
    let_others_run(10)
    unread = lambda: asked(a, termios.FIONREAD)
    result = [shown, call("sockatmark", a.fileno()), unread()]
    result += [a.recv(9), call("sockatmark", a.fileno()), unread()]
    result += [a.recv(1, socket.MSG_OOB), got("recv", a.fileno(), socket.MSG_OOB), unread()]
    return result + [a.recv(9), unread()]


# Descriptors.
def flagged(fd):
    return fcntl.fcntl(fd, fcntl.F_GETFD), fcntl.fcntl(fd, fcntl.F_GETFL)


for name, arguments in (
    ("F_GETFD", (fcntl.F_GETFD,)),
    ("F_SETFD", (fcntl.F_SETFD, 0)),
    ("F_GETFL", (fcntl.F_GETFL,)),
    ("F_SETFL", (fcntl.F_SETFL, os.O_NONBLOCK)),
    ("F_SETFL append", (fcntl.F_SETFL, os.O_APPEND)),
    ("F_GETOWN", (fcntl.F_GETOWN,)),
    ("F_SETOWN", (fcntl.F_SETOWN, 1)),
    ("F_SETSIG", (F_SETSIG, signal.SIGUSR1)),
    ("F_GETSIG", (F_GETSIG,)),
    ("F_GETLK", (fcntl.F_GETLK, 0)),
    ("no command", (9999, 0)),
):
    for function in ("fcntl", "fcntl64", "__fcntl"):
        answers(
            f"{function} {name}",
            lambda sock, f=function, rest=arguments: (call(f, sock.fileno(), *rest), flagged(sock)),
        )


def twin(make):
    """Uses of a duplicate after the original was closed."""

    def work(a, b):
        made = make(a.fileno())
        if isinstance(made, str):
            return made
        flags = flagged(made)
        a.close()
        sent = call("write", made, five, 5)
        result = drain(b, 5)
        b.sendall(HELLO)
        received_bytes = got("read", made)
        os.close(made)
        return flags, sent, result, received_bytes

    return work


HIGH = 700
for name, make in {
    "dup": lambda fd: call("dup", fd),
    "dup2": lambda fd: call("dup2", fd, HIGH),
    "__dup2": lambda fd: call("__dup2", fd, HIGH),
    "dup3": lambda fd: call("dup3", fd, HIGH, os.O_CLOEXEC),
    "dup3 wrong": lambda fd: call("dup3", fd, HIGH, 1),
    "dup3 same": lambda fd: call("dup3", fd, fd, 0),
    "F_DUPFD": lambda fd: call("fcntl", fd, fcntl.F_DUPFD, HIGH),
    "F_DUPFD_CLOEXEC": lambda fd: call("fcntl", fd, fcntl.F_DUPFD_CLOEXEC, HIGH),
    "F_DUPFD too high": lambda fd: call("fcntl", fd, fcntl.F_DUPFD, 1 << 30),
    "syscall dup": lambda fd: call("syscall", SYS["dup"], fd),
    "syscall dup3": lambda fd: call("syscall", SYS["dup3"], fd, HIGH, 0),
    "syscall fcntl": lambda fd: call("syscall", SYS["fcntl"], fd, fcntl.F_DUPFD, HIGH),
}.items():
    row(f"{name}, used")(twin(make))


def ends(name, close):
    """The effect of closing an end, for the peer and for the descriptor."""

    @row(f"ends by {name}")
    def run(a, b):
        fd = a.detach()
        result = close(fd)
        return result, b.recv(1), call("write", fd, five, 5)


def closed_from(fd):
    os.dup2(fd, HIGH)
    os.close(fd)
    C.closefrom(ctypes.c_int(HIGH))


ends("close", lambda fd: call("close", fd))
ends("__close", lambda fd: call("__close", fd))
ends("close_range", lambda fd: call("close_range", fd, fd, 0))
ends("closefrom", closed_from)
ends("dup2 over it", lambda fd: call("dup2", file_with(b"").fileno(), fd) == fd and call("close", fd))
ends("fclose", lambda fd: C.fclose(ctypes.c_void_p(C.fdopen(fd, b"r+"))))
ends("syscall close", lambda fd: call("syscall", 3, fd))
C.fdopen.restype = ctypes.c_void_p
C.fgets.restype = ctypes.c_void_p


@row("stdio")
def _(a, b):
    stream = ctypes.c_void_p(C.fdopen(os.dup(a.fileno()), b"r+"))
    printed = call("fprintf", stream, b"%s %d\n", b"line", 7), call("fflush", stream)
    result = drain(b, 7)
    b.sendall(b"one\ntwo\n")
    lines = []
    for _ in range(2):
        line = buffer(16)
        assert C.fgets(line, 16, stream)
        lines.append(line.value)
    return printed, result, lines, C.fclose(stream)


# Ends.
for how in (0, 1, 2, 3, -1):

    @row(f"shutdown {how}", hello=True)
    def _(a, b, how=how):
        result = [call("shutdown", a.fileno(), how)]
        if how in (1, 2):
            result.append(b.recv(1))
        result.append(got("recv", a.fileno(), socket.MSG_DONTWAIT, size=64))
        result.append(got("recv", a.fileno(), socket.MSG_DONTWAIT))
        result.append(call("send", a.fileno(), five, 5, socket.MSG_NOSIGNAL))
        result.append(call("shutdown", a.fileno(), how))
        return result


# Waiting: nothing to read, something to read, the end.
def by_select(function, sock):
    sets = [ctypes.create_string_buffer(128) for _ in range(3)]
    fd = sock.fileno()
    for one in sets:
        one[fd // 8] = 1 << fd % 8
    limit = (ctypes.c_long * 2)(0, 0)
    more = (None,) if function == "pselect" else ()
    result = call(function, fd + 1, *sets, limit, *more)
    return result, [one.raw[fd // 8] >> fd % 8 & 1 for one in sets]


# The library's descriptor is a Unix socket, which shows POLLWRBAND whenever it shows POLLOUT. TCP
# has no such band, so no program asks for it.
ALL_BUT_WRITE_BAND = 0x2FFF & ~0x200


def by_poll(function, sock):
    entry = struct.pack("=iHH", sock.fileno(), ALL_BUT_WRITE_BAND, 0)
    entry = text(entry)
    more = {"poll": (0,), "__poll": (0,), "__poll_chk": (0, 8)}.get(function)
    zero = (ctypes.c_long * 2)(0, 0)
    if more is None:
        more = (zero, None, 8) if function == "__ppoll_chk" else (zero, None)
    return call(function, entry, 1, *more), struct.unpack("=iHH", entry.raw)[2]


def by_epoll(function, sock):
    watching = select.epoll()
    watching.register(sock, ALL_BUT_WRITE_BAND)
    events = buffer(12)
    zero = (ctypes.c_long * 2)(0, 0)
    more = {"epoll_wait": (0,), "epoll_pwait": (0, None), "epoll_pwait2": (zero, None)}[function]
    result = call(function, watching.fileno(), events, 1, *more)
    return result, struct.unpack("=I", events.raw[:4])[0]


WAITS = {name: by_select for name in ("select", "__select", "pselect")}
WAITS |= {name: by_poll for name in ("poll", "__poll", "ppoll", "__poll_chk", "__ppoll_chk")}
WAITS |= {name: by_epoll for name in ("epoll_wait", "epoll_pwait", "epoll_pwait2")}
for name, way in WAITS.items():

    @row(name)
    def _(a, b, name=name, way=way):
        result = [way(name, a)]
        b.sendall(HELLO)
        arrived(a, len(HELLO))
        result.append(way(name, a))
        b.shutdown(socket.SHUT_WR)
        poll = select.poll()
        poll.register(a, 0x2000)
        assert poll.poll(DEADLINE * 1000)
        result.append(way(name, a))
        return result


# Calls for unconnected sockets, and calls for files.
def to_other_address(function, sock):
    return call(function, sock.fileno(), text(b"\2\0" + bytes(14)), 16)


answers("bind", lambda sock: to_other_address("bind", sock))
answers("connect", lambda sock: to_other_address("connect", sock))
answers("__connect", lambda sock: to_other_address("__connect", sock))
answers("listen", lambda sock: call("listen", sock.fileno(), 5))
answers("accept", lambda sock: call("accept", sock.fileno(), None, None))
answers("accept4", lambda sock: call("accept4", sock.fileno(), None, None, socket.SOCK_CLOEXEC))
answers("lseek", lambda sock: call("lseek", sock.fileno(), 0, 0))
answers("fsync", lambda sock: call("fsync", sock.fileno()))
answers("ftruncate", lambda sock: call("ftruncate", sock.fileno(), 0))
answers("fstat", lambda sock: (os.fstat(sock.fileno()).st_mode, os.fstat(sock.fileno()).st_size))
answers("posix_fadvise", lambda sock: call("posix_fadvise", sock.fileno(), 0, 0, 0))
answers("isatty", lambda sock: os.isatty(sock.fileno()))

unlike = {}


for name, run in ROWS.items():
    try:
        ours, tcp = run("127.0.0.1"), run("127.0.0.2")
    except OSError as error:
        raise AssertionError(name) from error
    if name in OF_KERNEL:
        assert ours != tcp, name
    elif ours != tcp:
        unlike[name] = (ours, tcp)
for name, (ours, tcp) in unlike.items():
    print(f"{name}\n  offloaded {ours}\n  TCP       {tcp}")
assert not unlike, f"{len(unlike)} of {len(ROWS)} differ"
assert len(ROWS) > 200, len(ROWS)
