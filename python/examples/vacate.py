#!/usr/bin/env python3
"""Works with a device that only one job may use at a time: vacate.py FILE SECONDS

Holds FILE by a lock, as a stand-in for the device, while the job has its turn, and gives it up at
each notice. Ends with 1 if another job holds it at the same time.

    tutti run --vacate 50ms python/examples/vacate.py /tmp/device.lock 10
"""

import fcntl
import sys
import time

import tutti.vacate


class Device:
    def __init__(self, path):
        self.path, self.file, self.turns = path, None, 0

    def acquire(self):
        self.file = open(self.path, "w")
        fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self):
        self.file.close()
        self.turns += 1


def main():
    device, end = Device(sys.argv[1]), time.time() + float(sys.argv[2])
    notices = tutti.vacate.register()
    device.acquire()
    steps = 0
    while time.time() < end:
        # Between two steps the program can give the device up.
        if notices and notices.wait(0) == tutti.vacate.NOTICE:
            device.release()
            notices.ready()
            while notices.wait() != tutti.vacate.RESUME:
                pass
            device.acquire()
        sum(range(10_000))
        steps += 1
    print(f"{steps} steps, gave the device up {device.turns} times")


if __name__ == "__main__":
    main()
