"""`select` with sets larger than `fd_set`, which contain a pipe and an offloaded listener."""

FAR = 3000
BITS = 64

Set = ctypes.c_uint64 * (4096 // BITS)


class Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("micros", ctypes.c_long)]


def select(readable, writable, micros):
    """Returns the number of ready descriptors, and the descriptors in each set."""
    sets = []
    for numbers in (readable, writable):
        one = Set()
        for number in numbers:
            one[number // BITS] |= 1 << number % BITS
        sets.append(one)
    count = max([*readable, *writable]) + 1
    time = Time(0, micros)
    ready = C.select(count, sets[0], sets[1], None, ctypes.byref(time))
    assert ready >= 0, os.strerror(ctypes.get_errno())
    named = [
        [number for number in range(4096) if one[number // BITS] >> number % BITS & 1]
        for one in sets
    ]
    return ready, named


soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))

listener = socket.create_server(("127.0.0.1", 0))
near, far = listener.fileno(), FAR
reads, writes = os.pipe()
assert fcntl.fcntl(reads, fcntl.F_DUPFD, far) == far
assert fcntl.fcntl(writes, fcntl.F_DUPFD, far + 100) == far + 100

# No descriptor is ready, so the sets are empty.
assert select([near, far], [], 1000) == (0, [[], []])
# A descriptor with a high number is watched and reported.
assert select([near, far], [far + 100], DEADLINE * 1_000_000) == (1, [[], [far + 100]])
os.write(writes, b"x")
assert select([near, far], [], DEADLINE * 1_000_000) == (1, [[far], []])
os.read(reads, 1)

client = socket.create_connection(listener.getsockname())
assert is_offloaded(client)
assert select([near, far], [], DEADLINE * 1_000_000) == (1, [[near], []])
