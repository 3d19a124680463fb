"""Commands that wait for their answer. Bounded in number and time; used by the gateway's loop alone."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from commands.reasons import REASONS, Refusal
from robot_gateway.wire import field_outside

BUSY_RETRY_MS: Final = 1000


@dataclass(slots=True)
class Answer:
    """What the owner said to command `command`: `accepted` (in log units) or a `refusal`.

    `position`: how far the answer is true; None where no owner has answered.
    """

    command: str
    pool: str
    accepted: dict[str, Any] | None = None
    refusal: Refusal | None = None
    position: str | None = None


class Asker(Protocol):
    """Whoever waits for the answers to one or several commands."""

    def answered(self, index: int, answer: Answer) -> None:
        """The command that was sent as number `index` has its answer."""


@dataclass(slots=True, eq=False)
class Waiting:
    """One command without an answer. `asker` is None once it is settled."""

    command: str
    pool: str
    index: int
    due: float
    asker: Asker | None


class Pending:
    """The table of unanswered commands. Instants are those of the loop's clock, in seconds."""

    def __init__(self, unanswered_max: int, timeout_s: float, clock: Callable[[], float]) -> None:
        self._max = unanswered_max
        self._timeout_s = timeout_s
        self._clock = clock
        self._by_id: dict[tuple[str, str], deque[Waiting]] = {}
        self._by_age: deque[Waiting] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def oldest_s(self) -> float:
        """For how long the oldest of them has had no answer; 0 where there is none. Any thread may ask."""
        with suppress(IndexError):  # taken away meanwhile
            return self._clock() - self._by_age[0].due + self._timeout_s if self._count else 0.0
        return 0.0

    def full_for(self, commands: int) -> Refusal | None:
        """Why `commands` more may not be sent now, or None."""
        if self._count + commands <= self._max:
            return None
        text = f"{self._count} commands wait for an answer here, {self._max} are the most"
        return Refusal("gateway_busy", text, retry_after_ms=BUSY_RETRY_MS)

    def add(self, pool: str, command: str, asker: Asker, index: int) -> Waiting:
        """Waits for the answer to a command that is about to be sent."""
        waiting = Waiting(command, pool, index, self._clock() + self._timeout_s, asker)
        self._by_id.setdefault((pool, command), deque()).append(waiting)
        self._by_age.append(waiting)
        self._count += 1
        return waiting

    def answer(self, pool: str, command: str, message: dict[str, Any], position: str | None) -> bool:
        """Passes on what the owner said; False where nobody waits for it any more.

        The same command may have been sent twice: answers come in the order of sending.
        """
        waiting = self._by_id.get((pool, command))
        if waiting is None:
            return False
        self._settle(waiting[0], answer_of(command, pool, message, position))
        return True

    def refuse(self, waiting: Waiting, refusal: Refusal) -> None:
        """Answers one command without the owner."""
        if waiting.asker is not None:
            self._settle(waiting, Answer(waiting.command, waiting.pool, refusal=refusal))

    def expire(self) -> None:
        """Ends the waiting of commands that had no answer in time."""
        now = self._clock()
        while self._by_age and (self._by_age[0].asker is None or self._by_age[0].due <= now):
            text = f"no answer within {self._timeout_s:g} s; asking again with the same command id is safe"
            self.refuse(self._by_age.popleft(), Refusal("no_answer", text))

    def end(self, why: str) -> None:
        """Ends all waiting."""
        for waiting in [one for same in self._by_id.values() for one in same]:
            self.refuse(waiting, Refusal("no_answer", why))

    def _settle(self, waiting: Waiting, answer: Answer) -> None:
        key = (waiting.pool, waiting.command)
        same = self._by_id[key]
        same.remove(waiting)
        if not same:
            del self._by_id[key]
        asker, waiting.asker = waiting.asker, None
        self._count -= 1
        while self._by_age and self._by_age[0].asker is None:
            self._by_age.popleft()
        if asker is not None:
            asker.answered(waiting.index, answer)


class Collected:
    """Gathers the answers to several commands; `done` is called once with all of them, in order of sending."""

    __slots__ = ("_answers", "_done", "_missing")

    def __init__(self, count: int, done: Callable[[list[Answer]], None]) -> None:
        self._answers: list[Answer | None] = [None] * count
        self._missing = count
        self._done = done

    def answered(self, index: int, answer: Answer) -> None:
        """One more answer is there."""
        self._answers[index] = answer
        self._missing -= 1
        if self._missing == 0:
            self._done([answer for answer in self._answers if answer is not None])


def into_future(future: "asyncio.Future[list[Answer]]") -> Callable[[list[Answer]], None]:
    """A `done` for `Collected` that fulfils `future`, unless whoever waited has gone."""

    def done(answers: list[Answer]) -> None:
        if not future.done():
            future.set_result(answers)

    return done


def answer_of(command: str, pool: str, message: dict[str, Any], position: str | None) -> Answer:
    """The owner's message for a command as an `Answer`."""
    if message.get("status") == "accepted":
        return Answer(command, pool, accepted=message.get("answer") or {}, position=position)
    return Answer(command, pool, refusal=refusal_of(message), position=position)


_REFUSAL_FIELDS: Final = frozenset(
    {"status", "type", "of", "reason", "text", "field", "retry", "retry_after_ms", "extra"}
)


def refusal_of(message: dict[str, Any]) -> Refusal:
    """The refusal that an owner wrote down; a word that this software does not know becomes `internal`."""
    reason, text = str(message.get("reason")), str(message.get("text", ""))
    if reason not in REASONS:
        reason, text = "internal", f"{reason}: {text}"
    extra = {name: value for name, value in message.items() if name not in _REFUSAL_FIELDS} | (
        message.get("extra") or {}
    )
    field = field_outside(message.get("field"))
    return Refusal(reason, text, field, message.get("retry_after_ms"), extra or None)
