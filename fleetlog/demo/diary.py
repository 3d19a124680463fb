"""What happens in the demonstration: events of the log as they come, and its own remarks, for whoever shows them."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fleetlog.output import Item

Wanted = Callable[[Item], bool]


class DemoFault(Exception):
    """The demonstration cannot go on; the message says why."""


class Interrupted(Exception):
    """Somebody wants it to end."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A line of the story: seconds since the beginning, what happened, and whether it is a blow (a kill)."""

    at_s: float
    text: str
    blow: bool = False


class Diary:
    """Remarks and events, in order. Thread-safe."""

    def __init__(self, on_remark: Callable[[Remark], None] = lambda _: None) -> None:
        self.began = time.monotonic()
        self.remarks: list[Remark] = []
        self._on_remark = on_remark
        self._events: list[Item] = []
        self._changed = threading.Condition()
        self._ended: Exception | None = None

    def remark(self, text: str, blow: bool = False) -> None:
        """One more line of the story."""
        remark = Remark(time.monotonic() - self.began, text, blow)
        with self._changed:
            self.remarks.append(remark)
        self._on_remark(remark)

    def take(self, event: Item) -> None:
        """One more event of the log."""
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def now(self) -> int:
        """How many events there are; `wait_for` may begin here."""
        with self._changed:
            return len(self._events)

    def end(self, why: Exception) -> None:
        """Whoever waits gets this exception."""
        with self._changed:
            self._ended = why
            self._changed.notify_all()

    def check(self) -> None:
        """Raises what `end` was given."""
        if self._ended is not None:
            raise self._ended

    def wait_for(self, wanted: Wanted, what: str, ceiling_s: float, start: int = 0) -> Item:
        """The first event from number `start` on that is wanted. Raises DemoFault after `ceiling_s`."""
        give_up = time.monotonic() + ceiling_s
        looked = start
        with self._changed:
            while True:
                self.check()
                for event in self._events[looked:]:
                    if wanted(event):
                        return event
                looked = len(self._events)
                left = give_up - time.monotonic()
                if left <= 0:
                    raise DemoFault(f"{what} did not happen within {ceiling_s:.0f} s")
                self._changed.wait(min(left, 0.5))

    def count(self, name: str) -> int:
        """How many events of a type (without version) there were."""
        with self._changed:
            return sum(1 for event in self._events if event["type"] == f"{name}.v1")

    def wait_until(self, true: Callable[[], Any], what: str, ceiling_s: float) -> Any:
        """What `true` gives when it is true; asked several times a second. Raises DemoFault after `ceiling_s`."""
        give_up = time.monotonic() + ceiling_s
        while True:
            self.check()
            found = true()
            if found:
                return found
            if time.monotonic() >= give_up:
                raise DemoFault(f"{what} did not happen within {ceiling_s:.0f} s")
            with self._changed:
                self._changed.wait(0.1)
