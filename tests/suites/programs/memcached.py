"""Stores values of many sizes by the text protocol, from threads, and compares the values that it reads."""
import hashlib
import socket
import sys
import threading

address = (sys.argv[1], int(sys.argv[2]))
SIZES = [0, 1, 2, 100, 1023, 1024, 1025, 16 * 1024, 64 * 1024 + 1, 300_000, 900_000]
failures = []


def value(name, size):
    block = hashlib.sha256(name.encode()).digest()
    return (block * (size // len(block) + 1))[:size]


def exchange(thread):
    with socket.create_connection(address) as connection, connection.makefile("rwb") as stream:
        for turn in range(3):
            for size in SIZES:
                name = f"{thread}/{turn}/{size}"
                sent = value(name, size)
                stream.write(b"set %b 0 0 %d\r\n%b\r\n" % (name.encode(), size, sent))
                stream.flush()
                assert stream.readline() == b"STORED\r\n", name
            # All values in one request, so that the answer is much longer than a socket's buffer.
            names = [f"{thread}/{turn}/{size}" for size in SIZES]
            stream.write(b"get " + " ".join(names).encode() + b"\r\n")
            stream.flush()
            for name, size in zip(names, SIZES):
                assert stream.readline() == b"VALUE %b 0 %d\r\n" % (name.encode(), size), name
                assert stream.read(size + 2) == value(name, size) + b"\r\n", name
            assert stream.readline() == b"END\r\n"
        stream.write(b"quit\r\n")
        stream.flush()
        assert stream.read() == b"", "the server continues after quit"


def guarded(thread):
    try:
        exchange(thread)
    except BaseException as error:
        failures.append(f"thread {thread}: {error!r}")


threads = [threading.Thread(target=guarded, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if failures:
    sys.exit("\n".join(failures))
print("done")
