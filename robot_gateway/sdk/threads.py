"""Threads for handlers: made when needed, used again, the one that was busy last goes first.

A thread wakes the next one only when it has taken work and more is waiting: short tasks that come one by one stay with
one thread (each change of thread costs more than such a task), and blocking ones still spread over all of them.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("fleetlog")

Work = Callable[[], Any]


class ThreadPool:
    """At most `size` daemon threads that run what `submit` is given, in order."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._lock = threading.Lock()
        self._work: deque[Work] = deque()
        self._idle: list[threading.Lock] = []
        self._threads = 0
        self._waking = False
        self._closed = False

    def submit(self, work: Work) -> None:
        """Run `work` as soon as a thread is free; exceptions are logged."""
        with self._lock:
            self._work.append(work)
            self._call_one()

    def resize(self, size: int) -> None:
        """Allow another number of threads; those that are there stay."""
        with self._lock:
            self._size = max(self._size, size)

    def close(self) -> None:
        """Let the idle threads end; those at work end after it."""
        with self._lock:
            self._closed = True
            for parked in self._idle:
                parked.release()
            self._idle.clear()

    def _call_one(self) -> None:
        """One thread at a time is on its way; it calls the next one when it has begun."""
        if self._waking or not self._work:
            return
        if self._idle:
            self._waking = True
            self._idle.pop().release()
        elif self._threads < self._size:
            self._waking = True
            self._threads += 1
            threading.Thread(target=self._serve, name=f"{self._name}-{self._threads}", daemon=True).start()

    def _serve(self) -> None:
        parked = threading.Lock()
        parked.acquire()
        called = True
        while True:
            with self._lock:
                if called:
                    self._waking = called = False
                if self._work:
                    work = self._work.popleft()
                    self._call_one()
                elif self._closed:
                    return
                else:
                    self._idle.append(parked)
                    work = None
            if work is None:
                parked.acquire()
                called = True
                continue
            try:
                work()
            except Exception:
                logger.exception("a fault of the robot SDK outside of any handler")
