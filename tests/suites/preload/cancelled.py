"""Threads that are cancelled in a call, on an offloaded connection and on a TCP connection: the thread
ends in the call, whatever the call waits for, and the connection continues."""

import _thread

BUFFER = ctypes.create_string_buffer(1 << 20)
PARTS = (IoVec * 1)(IoVec(ctypes.addressof(BUFFER), 10))
MESSAGES = (MMsgHdr * 1)()
MESSAGES[0].hdr.iov, MESSAGES[0].hdr.iovlen = ctypes.cast(PARTS, ctypes.POINTER(IoVec)), 1


def connected(host):
    listener = socket.create_server((host, 0))
    dialled = socket.create_connection(listener.getsockname())
    accepted, _ = listener.accept()
    assert is_offloaded(dialled) == (host == "127.0.0.1")
    return listener, dialled, accepted


def in_thread(work):
    """Starts a thread. Returns its thread id and its pthread_t."""
    is_ready = threading.Event()
    known = []

    def run():
        known.extend((_thread.get_native_id(), ctypes.c_ulong(_thread.get_ident())))
        is_ready.set()
        work()

    _thread.start_new_thread(run, ())
    is_ready.wait()
    return known


def until_gone(thread):
    until(lambda: not os.path.exists(f"/proc/self/task/{thread}"), "the thread still runs", 0.002)


def until_asleep_in_call(thread):
    asleep = 0
    while asleep < 20:
        with open(f"/proc/self/task/{thread}/stat") as stat:
            asleep = asleep + 1 if stat.read().rsplit(")", 1)[1].split()[0] == "S" else 0
        time.sleep(0.002)


def cancelled_asleep(work):
    thread, name = in_thread(work)
    until_asleep_in_call(thread)
    assert C.pthread_cancel(name) == 0
    until_gone(thread)


def still_there(a, b):
    a.sendall(b"still there")
    assert receive(b, 11) == b"still there"


def receive(sock, count):
    got = b""
    while len(got) < count:
        got += sock.recv(count - len(got))
    return got


for host in ("127.0.0.1", "127.0.0.2"):
    listener, a, b = connected(host)
    fd = b.fileno()
    cancelled_asleep(lambda: C.read(fd, BUFFER, 10))
    cancelled_asleep(lambda: C.recv(fd, BUFFER, 10, 0))
    cancelled_asleep(lambda: C.recvfrom(fd, BUFFER, 10, 0, None, None))
    cancelled_asleep(lambda: C.recvmsg(fd, ctypes.byref(MESSAGES[0]), 0))
    cancelled_asleep(lambda: C.recvmmsg(fd, MESSAGES, 1, 0, None))
    still_there(a, b)
    cancelled_asleep(lambda: C.accept(listener.fileno(), None, None))
    # The next connection can be accepted.
    with socket.create_connection(listener.getsockname()) as other:
        with listener.accept()[0] as accepted:
            still_there(other, accepted)

    # Another thread in such a call continues, and waits for all of its bytes.
    received = []

    def wait_for_all():
        received.append(b.recv(8, socket.MSG_WAITALL))

    waiting = threading.Thread(target=wait_for_all)
    waiting.start()
    a.sendall(b"four")
    until_asleep_in_call(waiting.native_id)
    second = connected(host)
    cancelled_asleep(lambda: C.recv(second[1].fileno(), BUFFER, 10, 0))
    a.sendall(b"more")
    waiting.join()
    assert received == [b"fourmore"], received

    # A writing thread ends, too. A call that has sent bytes returns, and the interpreter does not
    # survive a thread that is cancelled at its next cancellation point, so this call sends none.
    fill(b)
    cancelled_asleep(lambda: C.write(fd, BUFFER, len(BUFFER)))
    cancelled_asleep(lambda: C.writev(fd, PARTS, 1))
    cancelled_asleep(lambda: C.sendmsg(fd, ctypes.byref(MESSAGES[0]), 0))
    cancelled_asleep(lambda: C.sendmmsg(fd, MESSAGES, 1, 0))

# A thread that connects over TCP to a full queue. The library finds the protocol of the second socket by
# asking the kernel, because a duplicate is not recorded as a TCP socket.
with socket.create_server(("127.0.0.2", 0), backlog=0) as full:
    waiting = []
    for _ in range(2):
        waiting.append(socket.socket())
        waiting[-1].setblocking(False)
        assert waiting[-1].connect_ex(full.getsockname()) == errno.EINPROGRESS
    name = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(full.getsockname()[1]), bytes((127, 0, 0, 2)))
    for number in (lambda made: made.fileno(), lambda made: os.dup(made.fileno())):
        with socket.socket() as made:
            fd = number(made)
            cancelled_asleep(lambda: C.connect(fd, name, len(name)))
os._exit(0)
