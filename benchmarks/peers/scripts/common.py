"""What the scripts of all peers share: stamps that handlers leave, and the command line that submits.

Standard library only: this runs in each peer's own environment.
"""

import asyncio
import json
import os
import sys
import time

PROFILE = os.environ.get("PEER_PROFILE", "fast")
SILENCE_S = 5
SLOW_S = 3.0


def stamp(*words):
    """One line in the file of stamps; a short append is never torn."""
    line = json.dumps(words).encode() + b"\n"
    written = os.open(os.environ["PEER_STAMPS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(written, line)
    finally:
        os.close(written)


def note(sent):
    """The task `note`: when it was sent, and when its handler started."""
    stamp("note", sent, time.monotonic())


def slow():
    """The task `slow`: 3 s of work by a handler that blocks."""
    slow_begins()
    time.sleep(SLOW_S)
    slow_ends()


def slow_begins():
    stamp("slow", os.getpid(), time.monotonic())


def slow_ends():
    stamp("slow-done", os.getpid(), time.monotonic())


def asked():
    """KIND, COUNT and RATE of `submit KIND COUNT RATE`."""
    kind, count, rate = sys.argv[2:5]
    return kind, int(count), float(rate)


def number_of(kind, number):
    """The payload: when it is sent for `note`, else a number."""
    return time.monotonic() if kind == "note" else number


def told(began):
    print(json.dumps({"began": began, "ended": time.monotonic()}), flush=True)


def submit(many, one):
    """`many(kind, numbers)` submits all at once, `one(kind, number)` one of them."""
    kind, count, rate = asked()
    began = time.monotonic()
    if rate:
        for number in range(count):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            one(kind, number_of(kind, number))
    else:
        many(kind, [number_of(kind, number) for number in range(count)])
    told(began)


async def submit_async(many, one):
    """The same for coroutine functions."""
    kind, count, rate = asked()
    began = time.monotonic()
    if rate:
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            await one(kind, number_of(kind, number))
    else:
        await many(kind, [number_of(kind, number) for number in range(count)])
    told(began)


async def at_once(limit, calls):
    """Await the calls (functions without arguments), at most `limit` at a time."""
    waiting = iter(calls)

    async def serve():
        for call in waiting:
            await call()

    await asyncio.gather(*(serve() for _ in range(limit)))
