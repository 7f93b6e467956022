"""Sends to a peer that has closed have the results of TCP. The peer answers the first bytes by a reset, so
the first call succeeds, and the next one fails and raises SIGPIPE."""

TEXT = ctypes.create_string_buffer(b"text", 4)
PARTS = (IoVec * 2)(IoVec(ctypes.addressof(TEXT), 4), IoVec(ctypes.addressof(TEXT), 2))
MESSAGE = MsgHdr(None, 0, ctypes.cast(PARTS, ctypes.POINTER(IoVec)), 2, None, 0, 0)
NO_PARTS = (IoVec * 1)(IoVec(ctypes.addressof(TEXT), 0))
SENDS_NOTHING = ("nothing", "writev of no bytes")
raised = []
signal.signal(signal.SIGPIPE, lambda *_: raised.append(1))

CALLS = {
    "write": lambda fd, flags: C.write(fd, TEXT, 4),
    "send": lambda fd, flags: C.send(fd, TEXT, 4, flags),
    "sendto": lambda fd, flags: C.sendto(fd, TEXT, 4, flags, None, 0),
    "writev": lambda fd, flags: C.writev(fd, PARTS, 2),
    "sendmsg": lambda fd, flags: C.sendmsg(fd, ctypes.byref(MESSAGE), flags),
    "write by number": lambda fd, flags: C.syscall(1, fd, TEXT, 4),
    "writev of no bytes": lambda fd, flags: C.writev(fd, NO_PARTS, 1),
    "nothing": lambda fd, flags: C.send(fd, TEXT, 0, flags),
}


def result(call, sock, flags=0):
    """What a call returns, the error, and the number of signals that it raises."""
    before = len(raised)
    ctypes.set_errno(0)
    returned = CALLS[call](sock.fileno(), flags)
    # The handler runs before the interpreter executes the next line.
    why = errno.errorcode[ctypes.get_errno()] if returned < 0 else None
    return returned, why, len(raised) - before


def pair(host):
    with socket.create_server((host, 0)) as listener:
        dialled = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    assert is_offloaded(dialled) == (host == "127.0.0.1")
    return dialled, accepted


def await_event(sock, event):
    set = select.poll()
    set.register(sock, event)
    assert set.poll(DEADLINE * 1000), "no event"


def closed(host, call, flags):
    """The peer closes, and has read everything. It may have sent bytes before."""
    here, there = pair(host)
    there.send(b"last")
    there.close()
    await_event(here, select.POLLRDHUP)
    first = result(call, here, flags)
    if call not in SENDS_NOTHING:
        await_event(here, select.POLLHUP)
    results = first, result(call, here, flags), result("send", here, socket.MSG_NOSIGNAL)
    return results, here.recv(10), here.recv(10), result(call, here, flags)


def closed_with_unread_bytes(host, call, flags):
    here, there = pair(host)
    here.send(b"unread")
    there.close()
    await_event(here, select.POLLHUP)
    return result(call, here, flags), result(call, here, flags)


def ended_here(host, call, flags):
    """This end has ended its direction, before and after the peer closes."""
    here, there = pair(host)
    here.shutdown(socket.SHUT_WR)
    before = result(call, here, flags)
    there.close()
    await_event(here, select.POLLHUP)
    return before, result(call, here, flags), result(call, here, flags)


def by_a_duplicate(host, call, flags):
    here, there = pair(host)
    there.close()
    await_event(here, select.POLLRDHUP)
    with here.dup() as other:
        first = result(call, here, flags)
        if call not in SENDS_NOTHING:
            await_event(here, select.POLLHUP)
        return first, result(call, other, flags)


for made in (closed, closed_with_unread_bytes, ended_here, by_a_duplicate):
    for call in CALLS:
        for flags in (0, socket.MSG_NOSIGNAL):
            local, tcp = (made(host, call, flags) for host in ("127.0.0.1", "127.0.0.2"))
            assert local == tcp, (made.__name__, call, flags, local, tcp)
