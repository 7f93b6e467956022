"""An array for `poll` with as many entries as the program may have descriptors, most of them unused."""

POLLIN = 1
LIMIT = 512


class Entry(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]


hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, hard))
listener = socket.create_server(("127.0.0.1", 0))
other = socket.create_server(("127.0.0.1", 0))
entries = (Entry * LIMIT)(*[(-1, POLLIN, 0x55)] * LIMIT)
entries[7] = (listener.fileno(), POLLIN, 0)
entries[8] = (-1 - other.fileno(), POLLIN, 0x55)
entries[LIMIT - 1] = (other.fileno(), POLLIN, 0x55)


def ready_entries(timeout):
    ready = C.poll(entries, LIMIT, timeout)
    assert ready >= 0, ctypes.get_errno()
    found = {at: entry.revents for at, entry in enumerate(entries) if entry.revents}
    assert len(found) == ready, (found, ready)
    return found


assert ready_entries(0) == {}
clients = [socket.create_connection(listener.getsockname())]
assert is_offloaded(clients[0])
assert ready_entries(DEADLINE * 1000) == {7: POLLIN}
clients.append(socket.create_connection(other.getsockname()))
until(lambda: ready_entries(0) == {7: POLLIN, LIMIT - 1: POLLIN}, "no second listener")
assert entries[8].fd == -1 - other.fileno()
