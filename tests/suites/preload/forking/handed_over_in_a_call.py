"""A connection is handed over while a thread is in a call: the call continues, and transfers all of
its bytes, like a call on a TCP socket."""

ALL = 30000
HUGE = 32 << 20
WAIT_FOR_ALL, TRUNCATE = 0x100, 0x20
TEXT = (bytes(range(251)) * (HUGE // 251 + 1))[:HUGE]


def parts(room, *sizes):
    """A list of adjacent buffers."""
    at = ctypes.addressof(room)
    made = (IoVec * len(sizes))()
    for one, size in zip(made, sizes):
        one.base, one.len = at, size
        at += size
    return made


def messages(room, *sizes):
    """Messages of one buffer each."""
    iov = parts(room, *sizes)
    made = (MMsgHdr * len(sizes))()
    for number, one in enumerate(made):
        one.hdr.iov, one.hdr.iovlen = ctypes.pointer(iov[number]), 1
    made.kept = iov
    return made


def number(value):
    return ctypes.c_size_t(value)


def start_call(call, *arguments):
    """Starts a call in a thread, and waits until the call sleeps."""
    results, numbers = [], []

    def run():
        numbers.append(threading.get_native_id())
        result = getattr(C, call)(*arguments)
        results.append(result if result >= 0 else os.strerror(ctypes.get_errno()))

    thread = threading.Thread(target=run)
    thread.start()
    while not numbers:
        time.sleep(0.001)
    until_asleep(f"{os.getpid()}/task/{numbers[0]}")
    return thread, results


def hand_over(sock):
    """Makes a C stream for the socket, for which the library hands the connection over. The stream is
    not used. A fork would have the same effect, but the child's end interrupts calls."""
    assert C.fdopen(sock.fileno(), b"r+")


def during_handover(dial, call, *arguments):
    """The result of a call during which the connection is handed over. `dial` waits for that."""
    go = os.pipe()
    server, client = connected(lambda end: dial(end, lambda: os.read(go[0], 1)))
    thread, results = start_call(call, server.fileno(), *arguments)
    hand_over(server)
    os.write(go[1], b"x")
    thread.join()
    # Shown if the script fails.
    print(call, *results, flush=True)
    server.close()
    ended(client)
    for end in go:
        os.close(end)
    return results[0]


def receives(call, *arguments, result=ALL, kept=ALL):
    """The peer sends half of the bytes before the change and half after it."""

    def dial(client, changed):
        client.sendall(TEXT[: ALL // 2])
        changed()
        client.sendall(TEXT[ALL // 2 : ALL])
        assert client.recv(1) == b"", "the end"

    room = ctypes.create_string_buffer(ALL)
    made = [one(room) if callable(one) else one for one in arguments]
    got = during_handover(dial, call, *made)
    assert got == result, (call, got)
    assert room.raw == TEXT[:kept] + bytes(ALL - kept), call


def sends(call, *arguments, result=HUGE):
    """Sends more than the buffers hold; the peer reads after the change."""

    def dial(client, changed):
        changed()
        assert receive(client, HUGE) == TEXT
        assert client.recv(1) == b"", "the end"

    room = ctypes.create_string_buffer(TEXT, HUGE)
    made = [one(room) if callable(one) else one for one in arguments]
    got = during_handover(dial, call, *made)
    assert got == result, (call, got)


receives("recv", lambda room: room, number(ALL), WAIT_FOR_ALL)
receives("recvfrom", lambda room: room, number(ALL), WAIT_FOR_ALL, None, None)
receives(
    "recvmsg",
    lambda room: ctypes.byref(MsgHdr(iov=parts(room, 5, ALL - 15, 10), iovlen=3)),
    WAIT_FOR_ALL,
)
receives(
    "recvmmsg",
    lambda room: messages(room, *[ALL // 3] * 3),
    3,
    WAIT_FOR_ALL,
    None,
    result=3,
)
receives("recv", None, number(ALL), WAIT_FOR_ALL | TRUNCATE, kept=0)

sends("write", lambda room: room, number(HUGE))
sends("send", lambda room: room, number(HUGE), 0)
sends("writev", lambda room: parts(room, 5, HUGE - 15, 10), 3)
sends("sendmmsg", lambda room: messages(room, 5, HUGE - 15, 10), 3, 0, result=3)
with tempfile.TemporaryFile() as file:
    file.write(TEXT)
    file.flush()
    file.seek(0)
    sends("sendfile", file.fileno(), None, number(HUGE))
    assert file.tell() == HUGE
