"""What every script begins with: waiting for another thread to wait."""

import time


def until_asleep(process, looks=10, pause=0.01):
    """Until the first thread of a process has been asleep at so many looks, so that it is in a call."""
    asleep = 0
    while asleep < looks:
        with open(f"/proc/{process}/stat") as stat:
            state = stat.read().rsplit(")", 1)[1].split()[0]
        asleep = asleep + 1 if state == "S" else 0
        time.sleep(pause)


