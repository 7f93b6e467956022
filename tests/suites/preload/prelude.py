"""The first lines of every script: the modules and functions that most of them use."""

import ctypes
import errno
import faulthandler
import fcntl
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import traceback

# A script that hangs is aborted, and then prints its stack.
faulthandler.enable()

# True for the protocol of connections within the host, which are Unix sockets of the kernel.
LOCAL = os.environ.get("SUITE_PROTOCOL") == "local"
# True for a protocol whose peers are found through the port mapper.
ASKS_PEERS = not LOCAL

# The functions of the C library.
C = ctypes.CDLL(None, use_errno=True)

# The time limit of every event in seconds, long enough for a busy machine.
DEADLINE = 60


class IoVec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class MsgHdr(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_void_p),
        ("namelen", ctypes.c_uint),
        ("iov", ctypes.POINTER(IoVec)),
        ("iovlen", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("controllen", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    ]


class MMsgHdr(ctypes.Structure):
    _fields_ = [("hdr", MsgHdr), ("len", ctypes.c_uint)]


def until(holds, why, pause=0.01):
    """Waits until `holds()` is true."""
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, why
        time.sleep(pause)


def add_loopback_address(address, length):
    """Adds an address to the loopback device, and waits until it is reachable: the kernel makes the
    route to an IPv6 address a moment after the address."""
    family, more = ("-6", ["nodad"]) if ":" in address else ("-4", [])
    add = ["ip", "address", "add", f"{address}/{length}", "dev", "lo", *more]
    subprocess.run(add, check=True)
    show = ["ip", family, "route", "show", "table", "local"]
    route = f"local {address} dev lo "
    until(lambda: route in subprocess.check_output(show, text=True), f"no route to {address}")


def state(process):
    """The letter of the state of a process's first thread."""
    with open(f"/proc/{process}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0]


def until_asleep(process, checks=10, pause=0.01):
    """Waits until the first thread of a process was found asleep `checks` times: it is in a call."""
    asleep = 0
    while asleep < checks:
        asleep = asleep + 1 if state(process) == "S" else 0
        time.sleep(pause)


def while_asleep(work):
    """Runs `work` in a thread when the first thread of this process is asleep in a call."""

    def run():
        until_asleep(os.getpid(), checks=30, pause=0.002)
        work()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def sleeps():
    """For each other thread of this process: how often it went to sleep, and true if it is asleep."""
    seen = {}
    for thread in os.listdir("/proc/self/task"):
        if int(thread) == threading.get_native_id():
            continue
        try:
            with open(f"/proc/self/task/{thread}/status") as status:
                fields = dict(line.split(":", 1) for line in status)
        except (FileNotFoundError, ProcessLookupError):
            continue
        is_asleep = fields["State"].split()[0] == "S"
        seen[thread] = int(fields["voluntary_ctxt_switches"]), is_asleep
    return seen


def let_others_run(rounds=1, pause=0.01):
    """Waits `rounds` times until each other thread has gone to sleep. After that, all bytes in transit
    through the stack of this process have been received, however busy the processors are."""
    for _ in range(rounds):
        before = sleeps()
        time.sleep(pause)

        def have_run():
            return all(
                is_asleep or count > before[thread][0]
                for thread, (count, is_asleep) in sleeps().items()
                if thread in before
            )

        until(have_run, "a thread that never sleeps", 0.001)


def fill(sock):
    """Sends until the socket stays full without a reader. One refused send is not enough, because
    room may become free a moment later."""
    sock.setblocking(False)
    sent = refused = 0
    while refused < 30:
        try:
            sent += sock.send(b"x" * 65536)
            refused = 0
        except BlockingIOError:
            let_others_run()
            refused += 1
        assert sent < 1 << 30, "a connection without a reader is never full"
    sock.setblocking(True)
    return sent


def refused(work):
    """Returns the error number of a call that must fail."""
    try:
        work()
    except OSError as error:
        return error.errno
    raise AssertionError("no error")


def dial_nobody(address):
    """The kernel may assign an unused port to the client, and TCP then connects it to itself."""
    with socket.create_connection(address, timeout=DEADLINE) as client:
        if client.getsockname() == client.getpeername():
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody else is there")


def disconnect(sock):
    """`connect` with AF_UNSPEC."""
    unspecified = ctypes.create_string_buffer(16)
    done = C.connect(sock.fileno(), unspecified, len(unspecified))
    assert done == 0, errno.errorcode[ctypes.get_errno()]


def use_all_numbers():
    """Opens files until no descriptor is free."""
    numbers = []
    while True:
        try:
            numbers.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            assert error.errno == errno.EMFILE
            return numbers


def is_offloaded(sock):
    """True if the kernel's socket is a Unix socket, which the library has put there."""
    number = os.readlink(f"/proc/self/fd/{sock.fileno()}")[len("socket:[") : -1]
    with open("/proc/self/net/unix") as sockets:
        return any(line.split()[6] == number for line in sockets)


