"""A connection that has ended answers calls as TCP does, in each process that uses it, and a wait for an event
that TCP does not show lasts as long as over TCP."""

HOSTS = ("127.0.0.1", "127.0.0.2")


def pair(host):
    with socket.create_server((host, 0)) as listener:
        dialled = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    assert is_offloaded(dialled) == (host == HOSTS[0])
    return dialled, accepted


def await_event(sock, event):
    set = select.poll()
    set.register(sock, event)
    assert set.poll(DEADLINE * 1000), "no event"


def events(sock):
    set = select.poll()
    set.register(sock, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
    return [found for _, found in set.poll(0)]


def result(work):
    """The result of a call, or the name of its error."""
    try:
        return work() or "done"
    except OSError as error:
        return errno.errorcode[error.errno]


def answers(sock):
    return events(sock), result(sock.getpeername) == "ENOTCONN"


def end(sock):
    """The result of `shutdown`."""
    return result(lambda: sock.shutdown(socket.SHUT_RDWR))


def ended_by_a_child(host):
    """Another process ends the direction."""
    here, there = pair(host)
    child = os.fork()
    if child == 0:
        here.shutdown(socket.SHUT_WR)
        os._exit(0)
    os.waitpid(child, 0)
    there.recv(1)
    before = answers(here)
    there.close()
    await_event(here, select.POLLHUP)
    return before, answers(here), end(here), result(lambda: here.send(b"x"))


def ended_for_a_child(host):
    """Another process gets the answers."""
    here, there = pair(host)
    reader, writer = os.pipe()
    gate, go = os.pipe()
    child = os.fork()
    if child == 0:
        there.close()
        os.read(gate, 1)
        os.write(writer, repr((answers(here), end(here))).encode())
        os._exit(0)
    here.shutdown(socket.SHUT_WR)
    there.close()
    await_event(here, select.POLLHUP)
    os.write(go, b"x")
    os.waitpid(child, 0)
    return os.read(reader, 1000)


def ended_in_each_order(host):
    found = []
    for own_first in (True, False):
        here, there = pair(host)
        for ends in (here, there) if own_first else (there, here):
            ends.shutdown(socket.SHUT_WR)
        await_event(here, select.POLLHUP)
        found += [answers(here), answers(there), end(here), end(there)]
    return found


def open_after_both_directions_of_this_end(host):
    here, there = pair(host)
    here.shutdown(socket.SHUT_RDWR)
    return answers(here), end(here), answers(here)


def reset_and_received(host, receive):
    """After a call has returned the reset, no bytes are accepted."""
    here, there = pair(host)
    here.send(b"unread")
    there.close()
    await_event(here, select.POLLHUP)
    before = answers(here)
    received = result(lambda: receive(here))
    return before, received, answers(here), end(here), [result(lambda: here.send(b"x")) for _ in range(2)]


def refused(host):
    """Bytes for a peer that has closed: the error is pending afterwards."""
    here, there = pair(host)
    with select.epoll() as changes:
        changes.register(here, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        there.close()
        await_event(here, select.POLLRDHUP)
        before = [found for _, found in changes.poll(DEADLINE)], changes.poll(0)
        sent = result(lambda: here.send(b"x"))
        after = [found for _, found in changes.poll(DEADLINE)]
    pending = answers(here), end(here)
    error = here.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return before, sent, after, pending, error, answers(here), end(here), result(lambda: here.send(b"x"))


def waits(host):
    """Waits for an event that does not occur: they end with the timeout, and are asleep until then."""
    here, there = pair(host)
    there.close()
    await_event(here, select.POLLRDHUP)
    found = []
    for interest in (0, select.POLLPRI):
        set = select.poll()
        set.register(here, interest)
        other, writer = os.pipe()
        set.register(other, select.POLLIN)
        used = time.process_time()
        found.append(set.poll(100))
        for mode in (0, select.EPOLLET):
            with select.epoll() as epoll:
                epoll.register(here, interest | mode)
                found += [epoll.poll(0.1), epoll.poll(0.1, 1)]
        assert time.process_time() - used < 0.25, "the wait does not sleep"
        # Another descriptor of the set ends the wait.
        os.write(writer, b"x")
        found.append(len(set.poll(DEADLINE * 1000)))
    return found


def duplicated(host):
    """A set watches a duplicate whose original is closed."""
    here, there = pair(host)
    with select.epoll() as epoll:
        epoll.register(here, select.EPOLLIN)
        other = here.dup()
        here.close()
        there.close()
        await_event(other, select.POLLRDHUP)
        return [found for _, found in epoll.poll(DEADLINE)]


def set_before_it_connects(host):
    """The socket was in a set as a socket of TCP."""
    with socket.create_server((host, 0)) as listener, socket.socket() as here, select.epoll() as epoll:
        epoll.register(here, select.EPOLLIN)
        here.connect(listener.getsockname())
        listener.accept()[0].close()
        await_event(here, select.POLLRDHUP)
        return [found for _, found in epoll.poll(DEADLINE)]


RECEIVES = {
    "recv": lambda sock: sock.recv(1),
    "read": lambda sock: os.read(sock.fileno(), 1),
    "readv": lambda sock: os.readv(sock.fileno(), [bytearray(1)]),
    "recvmsg": lambda sock: sock.recvmsg(1),
    "the option": lambda sock: sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR),
}
CASES = [
    ended_by_a_child,
    ended_for_a_child,
    ended_in_each_order,
    open_after_both_directions_of_this_end,
    refused,
    waits,
    duplicated,
    set_before_it_connects,
    *((lambda host, call=call: reset_and_received(host, call)) for call in RECEIVES.values()),
]
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
for number, case in enumerate(CASES):
    local, tcp = (case(host) for host in HOSTS)
    assert local == tcp, f"{number} {case.__name__}:\n{local}\n{tcp}"
