"""Calls that wait in the middle, on an offloaded connection and on a TCP connection: their end, their
result, and the remaining bytes."""

PEEK, ALL, OUT_OF_BAND, NOW = socket.MSG_PEEK, socket.MSG_WAITALL, socket.MSG_OOB, 0x40
BYTE = ctypes.create_string_buffer(b"!", 1)


def call(name, *arguments):
    """The result of a C function, or the name of its error."""
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result = getattr(C, name)(*words)
    return result if result >= 0 else errno.errorcode[ctypes.get_errno()]


def connected(host):
    with socket.create_server((host, 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return client, listener.accept()[0]


def limit(sock, name, seconds):
    value = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, name, value)


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def receiving(flags, then=None, size=10, timeout=DEADLINE, before=lambda b: b.sendall(b"hello")):
    """Receives with `flags` when five bytes were received, and then the remaining bytes."""

    def run(a, b):
        before(b)
        a.recv(1, PEEK)
        let_others_run(20)
        limit(a, socket.SO_RCVTIMEO, timeout)
        room = ctypes.create_string_buffer(size)
        later = while_asleep(lambda: then(b)) if then else None
        result = [call("recv", a.fileno(), room, size, flags), room.raw]
        if later:
            later.join()
            let_others_run(20)
        for _ in range(3):
            left = ctypes.create_string_buffer(size)
            result += [call("recv", a.fileno(), left, size, NOW), left.raw]
        return result

    return run


def sending_urgent(flags=0, timeout=DEADLINE):
    """Sends an urgent byte when the socket is full, and nobody reads. On a busy machine the kernel's
    timer may free room after the last check, because it sends a part of a segment."""

    def run(a, b):
        limit(a, socket.SO_SNDTIMEO, timeout)
        for _ in range(5):
            fill(a)
            result = call("send", a.fileno(), BYTE, 1, OUT_OF_BAND | flags)
            if result == "EAGAIN":
                break
        return result

    return run


def sending_urgent_to_a_reader():
    """Sends an urgent byte when the socket is full, and the peer then reads."""

    def run(a, b):
        sent = fill(a)
        limit(a, socket.SO_SNDTIMEO, DEADLINE)

        def drain():
            left = sent
            while left:
                left -= len(b.recv(left))

        later = while_asleep(drain)
        result = call("send", a.fileno(), BYTE, 1, OUT_OF_BAND)
        later.join()
        byte = ctypes.create_string_buffer(1)
        until(lambda: call("recv", b.fileno(), byte, 1, OUT_OF_BAND) == 1, "no urgent byte")
        return result, byte.raw

    return run


def in_time(case, is_in_time):
    """Runs a case with longer and longer timeouts, because on a busy machine the first ones may pass
    before the peer's thread has run."""

    def run(a, b):
        for timeout in (3, 20):
            result = case(timeout)(a, b)
            if is_in_time(result):
                break
        return result

    return run


def send(more):
    return lambda b: b.sendall(more)


def urgent(b):
    b.send(b"wor!", OUT_OF_BAND)


def then_more(b):
    urgent(b)
    # The mark may be received late, and the bytes after it must not overtake it.
    let_others_run(10)
    b.sendall(b"more")


CASES = {}
# A peek at the kernel's Unix sockets returns the available bytes.
for name, flags in ({"receive": ALL} if LOCAL else {"receive": ALL, "peek": PEEK | ALL}).items():
    CASES |= {
        f"{name}, and the rest is received": receiving(flags, send(b"world")),
        f"{name}, and more than the rest is received": receiving(flags, send(b"world and more")),
        f"{name}, and the rest is received in two parts": receiving(
            flags, lambda b: (b.sendall(b"wo"), let_others_run(10), b.sendall(b"rld"))
        ),
        f"{name}, and nothing is received in time": receiving(flags, timeout=0.1),
        f"{name}, and a part is received in time": in_time(
            lambda timeout: receiving(flags, send(b"w"), timeout=timeout),
            lambda result: result[0] == 6,
        ),
        f"{name}, now": receiving(flags | NOW),
        f"{name}, and the end is received": receiving(flags, lambda b: b.shutdown(socket.SHUT_WR)),
        f"{name}, and an urgent byte is received": receiving(flags, urgent),
        f"{name}, and an urgent byte with more after it is received": receiving(flags, then_more),
        f"{name} after an urgent byte": receiving(flags, before=then_more),
        f"{name} of a part of the bytes": receiving(flags, size=3),
    }
    if not LOCAL:
        # The kernel's Unix sockets have no reset without unread bytes.
        CASES[f"{name}, and a reset is received"] = receiving(flags, reset)
CASES |= {
    "urgent, when there is room": sending_urgent_to_a_reader(),
    "urgent, in time": sending_urgent(timeout=0.1),
    "urgent, now": sending_urgent(NOW),
}
for name, run in CASES.items():
    print(name, flush=True)
    result = []
    for host in ("127.0.0.1", "127.0.0.2"):
        a, b = connected(host)
        assert is_offloaded(a) == (host == "127.0.0.1"), host
        with a, b:
            result.append(run(a, b))
    assert result[0] == result[1], (name, *result)
