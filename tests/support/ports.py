"""Free ports on the loopback address."""

from __future__ import annotations

import contextlib
import random
import socket
from contextlib import ExitStack

LOOPBACK = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """`count` different ports that nobody listens on now; another program may still come first."""
    with ExitStack() as held:
        taken = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind((LOOPBACK, 0))
        return [int(one.getsockname()[1]) for one in taken]


def free_port() -> int:
    """One port that nobody listens on now."""
    return free_ports(1)[0]


def ports_for_later(count: int) -> list[int]:
    """`count` free ports that no program is given by the system when it asks for any: they stay free for a while."""
    found: set[int] = set()
    while len(found) < count:
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind((LOOPBACK, random.randrange(20_000, 32_000)))
            found.add(int(one.getsockname()[1]))
    return sorted(found)
