"""A bad cable between two network interfaces: it delays frames and loses some of them.

Both ends are TAP devices; a thread carries frames between them.  (The kernel's own netem is missing from many small
kernels.)  Which frames are lost follows from the seed, so a test is the same every time.
"""

import fcntl
import heapq
import os
import random
import select
import struct
import threading
import time

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x2, 0x1000
FRAME_BYTES = 65536


def tap(name):
    """A new interface of that name; frames are read from and written to the descriptor."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return file


class Wire:
    """Carries until close().  What comes from the far end, the host's, is late by delay seconds and lost with the
    probability loss; the other way nothing happens to it.  So does netem on a host's interface."""

    def __init__(self, near, far, delay=0.0, loss=0.0, seed=1):
        self.ends = [tap(near), tap(far)]
        self.delay, self.loss = delay, loss
        self.random = random.Random(seed)
        self.sent, self.lost = 0, 0  # frames from the far end
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._carry, daemon=True)
        self.thread.start()

    def _carry(self):
        """Frames under way lie in a heap by their time of arrival; their number keeps them in order."""
        under_way, number = [], 0
        while not self.stop.is_set():
            wait = 0.05
            if under_way:
                wait = min(wait, max(0.0, under_way[0][0] - time.monotonic()))
            for end in select.select(self.ends, [], [], wait)[0]:
                other = self.ends[1 - self.ends.index(end)]
                for frame in self._read(end):
                    number += 1
                    late = self.delay if end == self.ends[1] else 0.0
                    heapq.heappush(under_way, (time.monotonic() + late, number, other, frame))
            while under_way and under_way[0][0] <= time.monotonic():
                _, _, other, frame = heapq.heappop(under_way)
                self._write(other, frame)

    def _read(self, end):
        """What has come, without what is lost."""
        frames = []
        try:
            while len(frames) < 64:
                frame = os.read(end, FRAME_BYTES)
                self.sent += end == self.ends[1]
                if end == self.ends[1] and self.random.random() < self.loss:
                    self.lost += 1
                else:
                    frames.append(frame)
        except OSError:  # no more, or the interface is down
            pass
        return frames

    def _write(self, end, frame):
        try:
            os.write(end, frame)
        except OSError:  # the interface is down: the frame goes nowhere, as on a cut cable
            pass

    def close(self):
        self.stop.set()
        self.thread.join()
        for end in self.ends:
            os.close(end)
