"""Whether this gateway has more to do than it can: said in words by `/readyz`, and answered by taking no new work.

What was begun goes on whatever comes: reports, heartbeats and operators' verbs are always taken. New work, that is
submissions and sessions of robots, is refused with a time to come back while the gateway is overloaded.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from commands.reasons import Refusal
from robot_gateway.pending import Pending
from robot_gateway.settings import GatewaySettings

LATE_S: Final = 0.5
"""A turn of the sweeper that comes so late took twice its time."""
TURNS: Final = 8
LATE_TURNS: Final = 4
"""So many late ones of the last TURNS: not one pause (of the machine, of a debugger), but too much work."""
NEARLY: Final = 0.9
"""The share of a bound from which it is said."""
UNANSWERED_S: Final = 10.0
"""An owner that is there answers within moments, and takes over within seconds."""
COME_BACK_MS: Final = 5_000


class Load:
    """`sessions`: how many there are now; `pending`: the commands without an answer. Written by the gateway's loop."""

    def __init__(self, settings: GatewaySettings, sessions: Callable[[], int], pending: Pending) -> None:
        self._settings, self._sessions, self._pending = settings, sessions, pending
        self._late: deque[bool] = deque(maxlen=TURNS)
        self._late_s = 0.0

    def turned(self, late_s: float) -> None:
        """The sweeper came so late to its turn."""
        self._late.append(late_s >= LATE_S)
        self._late_s = late_s

    @property
    def overloaded(self) -> bool:
        """Whether the loop has been too late again and again."""
        return sum(self._late) >= LATE_TURNS

    def no_new_work(self) -> Refusal | None:
        """Why no new work is taken now, or None."""
        if not self.overloaded:
            return None
        text = "this gateway is overloaded and takes no new work now; what was begun goes on"
        return Refusal("not_ready", text, retry_after_ms=COME_BACK_MS)

    def in_words(self) -> str | None:
        """What is too much and what to do; None where nothing is."""
        said = []
        if self.overloaded:
            said.append(
                f"overloaded, its loop comes {self._late_s:.1f} s late; no submissions and no further robots are taken "
                "until it is better: start another gateway, or give this one more of a processor"
            )
        sessions_max, unanswered_max = self._settings.sessions_max, self._settings.unanswered_max
        if self._sessions() >= sessions_max:
            said.append(
                f"{sessions_max} robots are connected, no further ones are taken: start another gateway, or "
                "raise gateway.sessions_max"
            )
        if len(self._pending) >= NEARLY * unanswered_max:
            said.append(
                f"{len(self._pending)} commands wait for an answer and {unanswered_max} are the most: see whether "
                "owners run, or start more of them"
            )
        oldest_s = self._pending.oldest_s()
        if oldest_s >= UNANSWERED_S:
            said.append(
                f"a command has had no answer for {oldest_s:.0f} s: see whether owners run (`fleetlog processor`) and "
                "reach the log"
            )
        return "; ".join(said) or None
