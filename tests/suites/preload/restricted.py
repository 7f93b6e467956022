"""A program that has restricted its system calls: each function makes the system call of its name and no other.

For each function, a child installs a filter that kills it for every other system call that a library could make
on a socket. The numbers are those of x86-64."""

if os.uname().machine != "x86_64":
    print("NOT RUN: the numbers of system calls are those of x86-64")
    sys.exit()

NUMBERS = {
    "read": 0, "write": 1, "openat": 257, "open": 2, "close": 3, "fstat": 5, "newfstatat": 262, "poll": 7,
    "ioctl": 16, "readv": 19, "writev": 20, "rt_sigprocmask": 14, "rt_sigaction": 13, "select": 23,
    "sched_yield": 24, "dup": 32, "dup2": 33, "dup3": 292, "sendto": 44, "recvfrom": 45, "sendmsg": 46,
    "recvmsg": 47, "socketpair": 53, "shutdown": 48, "getsockname": 51, "getpeername": 52, "setsockopt": 54, "getsockopt": 55,
    "kill": 62, "tkill": 200, "tgkill": 234, "fcntl": 72, "epoll_wait": 232, "epoll_ctl": 233,
    "pselect6": 270, "ppoll": 271, "epoll_pwait": 281, "sendmmsg": 307, "recvmmsg": 299, "preadv2": 327,
    "pwritev2": 328, "epoll_pwait2": 441,
}
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2
KILL_PROCESS, ALLOW = 0x80000000, 0x7FFF0000


def refuse_all_but(named):
    """Kills the process for every call of the table that is not named."""
    lines = [(0x20, 0, 0, 0)]
    for name, number in NUMBERS.items():
        if name not in named:
            lines += [(0x15, 0, 1, number), (0x06, 0, 0, KILL_PROCESS)]
    lines.append((0x06, 0, 0, ALLOW))
    code = b"".join(struct.pack("HBBI", *line) for line in lines)
    code = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(code)))
    assert C.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert C.prctl(PR_SET_SECCOMP, MODE_FILTER, program, 0, 0) == 0


ROOM = ctypes.create_string_buffer(b"some bytes of a text", 20)
PARTS = (IoVec * 2)(IoVec(ctypes.addressof(ROOM), 4), IoVec(ctypes.addressof(ROOM) + 4, 4))
MESSAGE = MsgHdr(None, 0, ctypes.cast(PARTS, ctypes.POINTER(IoVec)), 2, None, 0, 0)
MESSAGES = (MMsgHdr * 2)(MMsgHdr(MESSAGE, 0), MMsgHdr(MESSAGE, 0))
NOW = (ctypes.c_long * 2)(0, 0)
DONTWAIT, NOSIGNAL = socket.MSG_DONTWAIT, socket.MSG_NOSIGNAL
ENTRY = ctypes.create_string_buffer(8)
EVENT = ctypes.create_string_buffer(12 * 4)
BITS = (ctypes.c_ulong * 16)()


def entry(fd):
    struct.pack_into("ihh", ENTRY, 0, fd, select.POLLIN | select.POLLOUT, 0)
    return ENTRY


def bits(fd):
    BITS[fd // 64] = 1 << fd % 64
    return BITS


# The functions, the calls that they may make, and whether the peer must have sent bytes.
SENDS = {
    "write": (lambda fd, _: C.write(fd, ROOM, 4), ["write"]),
    "send": (lambda fd, _: C.send(fd, ROOM, 4, NOSIGNAL), ["sendto"]),
    "sendto": (lambda fd, _: C.sendto(fd, ROOM, 4, NOSIGNAL, None, 0), ["sendto"]),
    "writev": (lambda fd, _: C.writev(fd, PARTS, 2), ["writev"]),
    "sendmsg": (lambda fd, _: C.sendmsg(fd, ctypes.byref(MESSAGE), NOSIGNAL), ["sendmsg"]),
    "sendmmsg": (lambda fd, _: C.sendmmsg(fd, MESSAGES, 2, NOSIGNAL), ["sendmmsg"]),
    "pwritev2": (lambda fd, _: C.pwritev2(fd, PARTS, 2, ctypes.c_long(-1), 0), ["pwritev2"]),
}
OTHERS = {
    "read": (lambda fd, _: C.read(fd, ROOM, 4), ["read"]),
    "recv": (lambda fd, _: C.recv(fd, ROOM, 4, 0), ["recvfrom"]),
    "recvfrom": (lambda fd, _: C.recvfrom(fd, ROOM, 4, 0, None, None), ["recvfrom"]),
    "readv": (lambda fd, _: C.readv(fd, PARTS, 2), ["readv"]),
    "recvmsg": (lambda fd, _: C.recvmsg(fd, ctypes.byref(MESSAGE), 0), ["recvmsg"]),
    "recvmmsg": (lambda fd, _: C.recvmmsg(fd, MESSAGES, 2, DONTWAIT, None), ["recvmmsg"]),
    "preadv2": (lambda fd, _: C.preadv2(fd, PARTS, 2, ctypes.c_long(-1), 0), ["preadv2"]),
    "poll": (lambda fd, _: C.poll(entry(fd), 1, 1000), ["poll"]),
    "ppoll": (lambda fd, _: C.ppoll(entry(fd), 1, NOW, None), ["ppoll"]),
    # The C library has made either call.
    "select": (lambda fd, _: C.select(fd + 1, bits(fd), None, None, NOW), ["select", "pselect6"]),
    "pselect": (lambda fd, _: C.pselect(fd + 1, bits(fd), None, None, NOW, None), ["pselect6"]),
    "epoll_wait": (lambda _, set: C.epoll_wait(set, EVENT, 4, 1000), ["epoll_wait"]),
    "epoll_pwait": (lambda _, set: C.epoll_pwait(set, EVENT, 4, 0, None), ["epoll_pwait"]),
    "epoll_pwait2": (lambda _, set: C.epoll_pwait2(set, EVENT, 4, NOW, None), ["epoll_pwait2"]),
    "epoll_ctl": (lambda fd, set: C.epoll_ctl(set, 2, fd, EVENT), ["epoll_ctl"]),
    "shutdown": (lambda fd, _: C.shutdown(fd, socket.SHUT_WR), ["shutdown"]),
    # The library closes a descriptor of its own too, after it has checked its file.
    "close": (lambda fd, _: C.close(fd), ["close"] if LOCAL else ["close", "fstat"]),
}


def run(host, call, named, is_closed):
    """The result of a call under the filter, and the signal that ended the child, if any. A send to a peer that
    has closed returns the kernel's error."""
    with socket.create_server((host, 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
    assert is_offloaded(here) == (host == "127.0.0.1")
    there.send(b"bytes of the peer")
    set = C.epoll_create1(0)
    event = ctypes.create_string_buffer(struct.pack("<IQ", select.EPOLLIN | select.EPOLLOUT, here.fileno()))
    assert C.epoll_ctl(set, 1, here.fileno(), event) == 0
    if is_closed:
        there.close()
    child = os.fork()
    if child == 0:
        fd = here.fileno()
        refuse_all_but(named)
        result = call(fd, set)
        os._exit(100 if result < 0 else result)
    _, status = os.waitpid(child, 0)
    os.close(set)
    here.close()
    there.close()
    return os.waitstatus_to_exitcode(status)


wrong = []
for name, (call, named) in (SENDS | OTHERS).items():
    for is_closed in (False, True):
        local, tcp = (run(host, call, named, is_closed) for host in ("127.0.0.1", "127.0.0.2"))
        if is_closed and name in SENDS:
            # The kernel refuses bytes for a peer that has closed within the host. Over TCP and SDP a
            # first message is sent, and also a second one before the peer's reset is received.
            tcp = 100 if LOCAL else max(local, 1)
        if local != tcp:
            wrong.append((name, is_closed, local, tcp))
assert not wrong, wrong
