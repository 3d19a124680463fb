"""Handlers on virtual time as they are written: each is a strand, a thread that runs while the world stands still.

One at a time and in one order, so that the same test plays the same. A strand gives the word back when it rests.
"""

import threading
from collections.abc import Callable
from typing import Final

REAL_S_MAX: Final = 60.0
"""How long a handler may run in real time before the kit says that it hangs."""


class Gone(BaseException):
    """Raised where a handler rests when its robot has been killed; nothing that it says afterwards is heard."""


class HandlerHangs(Exception):
    """A handler waits for something real; virtual time cannot go on meanwhile."""


class Strand:
    """`work` in a thread of its own, in turns with whoever calls `go_on`."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self.over = False
        self._work, self._name = work, name
        self._gone = self._hangs = False
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=f"fleetlog-strand-{name}", daemon=True)

    @property
    def is_here(self) -> bool:
        """Whether the caller is this strand."""
        return threading.current_thread() is self._thread

    def go_on(self) -> None:
        """Lets it run until it rests or is over; raises HandlerHangs after REAL_S_MAX seconds of real time."""
        if self.over or self._hangs:
            return
        if self._thread.ident is None:
            self._thread.start()
        self._mine.release()
        if not self._theirs.acquire(timeout=REAL_S_MAX):
            self._hangs = True
            raise HandlerHangs(
                f"the handler of {self._name} has not returned for {REAL_S_MAX:g} s of real time: "
                "let it wait by ctx.sleep or ctx.cancelled_event, and replace what it waits for"
            )

    def rest(self) -> None:
        """Called by the strand: the world goes on, until somebody lets the strand go on. Raises Gone."""
        self._raise_if_gone()
        self._theirs.release()
        self._mine.acquire()
        self._raise_if_gone()

    def end(self) -> None:
        """It is told that it is gone, and runs to its end. Raises Gone where the strand itself says so."""
        self._gone = True
        if self.is_here:
            raise Gone
        if self._thread.ident is None:
            self.over = True
        self.go_on()

    def _raise_if_gone(self) -> None:
        if self._gone:
            raise Gone

    def _run(self) -> None:
        self._mine.acquire()
        try:
            if not self._gone:
                self._work()
        except Gone:
            pass
        finally:
            self.over = True
            self._theirs.release()
