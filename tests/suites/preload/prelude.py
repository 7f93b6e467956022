"""What every script begins with."""

import faulthandler
import os
import threading
import time

# What hangs says where when it is aborted for that.
faulthandler.enable()

# Connections within the host, which are sockets of the kernel's.
LOCAL = os.environ.get("SUITE_PROTOCOL") == "local"
# A protocol whose peers say by the port mapper where they listen.
ASKS_PEERS = not LOCAL

# In seconds: what has not come about after this long does not come about, on a busy machine either.
DEADLINE = 60


def until(holds, why, pause=0.01):
    """Until it holds. A test that waits so is not faster than the machine."""
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, why
        time.sleep(pause)


def until_asleep(process, looks=10, pause=0.01):
    """Until the first thread of a process has been asleep at so many looks, so that it is in a call."""
    asleep = 0
    while asleep < looks:
        with open(f"/proc/{process}/stat") as stat:
            state = stat.read().rsplit(")", 1)[1].split()[0]
        asleep = asleep + 1 if state == "S" else 0
        time.sleep(pause)


def while_asleep(work):
    """Does it when the first thread of this process is asleep in a call."""

    def run():
        until_asleep(os.getpid(), looks=30, pause=0.002)
        work()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def sleeps():
    """How often each other thread of this process has gone to sleep, and whether it is asleep."""
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
    """Until each other thread has found nothing to do for so many times: what was on its way through
    the stack of this process has arrived, however long its threads waited for a processor."""
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
    """Sends until there is no room, and none comes by itself. One refused send is no sign of that:
    what makes room may only be late."""
    sock.setblocking(False)
    sent = refused = 0
    while refused < 30:
        try:
            sent += sock.send(b"x" * 65536)
            refused = 0
        except BlockingIOError:
            let_others_run()
            refused += 1
        assert sent < 1 << 30, "what nobody reads does not fill the connection"
    sock.setblocking(True)
    return sent


def is_offloaded(sock):
    """Whether what the kernel sees there is the library's pair."""
    number = os.readlink(f"/proc/self/fd/{sock.fileno()}")[len("socket:[") : -1]
    with open("/proc/self/net/unix") as sockets:
        return any(line.split()[6] == number for line in sockets)


