"""What every script begins with."""

import faulthandler
import os
import time

# What hangs says where when it is aborted for that.
faulthandler.enable()


def until_asleep(process, looks=10, pause=0.01):
    """Until the first thread of a process has been asleep at so many looks, so that it is in a call."""
    asleep = 0
    while asleep < looks:
        with open(f"/proc/{process}/stat") as stat:
            state = stat.read().rsplit(")", 1)[1].split()[0]
        asleep = asleep + 1 if state == "S" else 0
        time.sleep(pause)


def is_offloaded(sock):
    """Whether what the kernel sees there is the library's pair."""
    number = os.readlink(f"/proc/self/fd/{sock.fileno()}")[len("socket:[") : -1]
    with open("/proc/self/net/unix") as sockets:
        return any(line.split()[6] == number for line in sockets)


