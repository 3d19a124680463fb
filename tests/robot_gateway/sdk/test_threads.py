"""The pool of threads for handlers."""

from __future__ import annotations

import threading
import time

from robot_gateway.sdk.threads import ThreadPool
from tests.support.fleet import CEILING_S, until


def test_everything_is_run_once_and_in_order_by_one_thread() -> None:
    """A pool of one."""
    pool, seen, done = ThreadPool(1, "t"), list[int](), threading.Event()
    for number in range(1000):
        pool.submit(lambda n=number: seen.append(n))  # type: ignore[misc]
    pool.submit(done.set)
    assert done.wait(CEILING_S)
    assert seen == list(range(1000))
    pool.close()


def test_blocking_work_spreads_over_all_threads_and_not_more() -> None:
    """Eight that meet at a barrier run at once; a ninth waits for room."""
    pool, barrier = ThreadPool(8, "t"), threading.Barrier(9)
    late = threading.Event()
    for _ in range(8):
        pool.submit(lambda: barrier.wait(CEILING_S))
    pool.submit(late.set)
    time.sleep(0.1)
    assert not late.is_set()
    barrier.wait(CEILING_S)
    assert late.wait(CEILING_S)
    pool.close()


def test_the_thread_that_was_busy_last_goes_first() -> None:
    """Work that comes one at a time stays with one thread of those that are there."""
    pool, barrier, threads = ThreadPool(8, "t"), threading.Barrier(9), set[int]()
    for _ in range(8):
        pool.submit(lambda: barrier.wait(CEILING_S))
    barrier.wait(CEILING_S)
    for _ in range(100):
        until(lambda: len(pool._idle) == 8, "all threads to be idle")
        pool.submit(lambda: threads.add(threading.get_ident()))
    until(lambda: len(pool._idle) == 8, "all threads to be idle")
    assert len(threads) == 1
    pool.close()


def test_a_fault_does_not_cost_a_thread() -> None:
    """It is logged; the same thread goes on."""
    pool, done = ThreadPool(1, "t"), threading.Event()
    pool.submit(lambda: 1 / 0)
    pool.submit(done.set)
    assert done.wait(CEILING_S)
    pool.close()


def test_idle_threads_end_with_the_pool() -> None:
    """close lets them go."""
    pool, barrier = ThreadPool(4, "closing"), threading.Barrier(5)
    for _ in range(4):
        pool.submit(lambda: barrier.wait(CEILING_S))
    barrier.wait(CEILING_S)
    pool.close()
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("closing-")], "the end of the threads")
