"""Robot messages on their way: what waits to be sent, what waits for its answer, what is sent again.

No clock and no socket: the time (seconds) comes with each call. One thread at a time.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from commands.messages import Ack, FromRobot, Refused, encode_robot_message
from robot_gateway.sdk.wire import numbered

RESEND_AFTER_S: Final = 5.0
"""Without an answer for this long a message is sent again."""
FINAL_TYPES: Final = frozenset({"complete", "fail", "stopped"})
LATEST_TYPES: Final = frozenset({"ready", "update", "fault", "recovered"})
"""Only the newest of each counts; hello says it all anew."""

Answer = Ack | Refused


@dataclass(slots=True, eq=False)
class Message:
    """One message of the robot with what became of it.

    `body`: the JSON object without epoch and seq. `on_answer`: told the answer, by the thread that received it.
    """

    id: str
    type: str
    body: bytes
    key: tuple[str, int] | None = None
    on_answer: Callable[[Answer], None] | None = None
    queued: bool = False
    first_sent_at: float | None = None
    sent_at: float = field(default=0.0)


class Outbox:
    """Messages of one robot. `take` gives those to send now, numbered in the current epoch."""

    def __init__(self, boot_id: str) -> None:
        self.boot_id = boot_id
        self._counter = count(1)
        self._epoch: int | None = None
        self._seq = 0
        self._queue: deque[Message] = deque()
        self._unanswered: dict[str, Message] = {}
        self._sent: deque[tuple[float, Message]] = deque()
        self._held_back: list[tuple[float, int, Message]] = []

    def new_id(self) -> str:
        """An id that no message of this robot ever had: the boot id and a counter."""
        return f"{self.boot_id}.{next(self._counter)}"

    def message(self, message: FromRobot, key: tuple[str, int] | None = None) -> Message:
        """`message` as something to send; its `id` is kept."""
        return Message(message.id, message.type, encode_robot_message(message), key)

    def add(self, message: Message) -> None:
        """Send `message` until it is answered; an older one of the same latest-only type is forgotten."""
        if message.type in LATEST_TYPES:
            for old in [m for m in self._unanswered.values() if m.type == message.type]:
                self.drop(old)
        self._unanswered[message.id] = message
        self.again(message)

    def add_once(self, message: Message) -> None:
        """Send `message` before all others, and only once: heartbeats."""
        message.queued = True
        self._queue.appendleft(message)

    def again(self, message: Message) -> None:
        """Send `message` (again) with the next `take`."""
        self._unanswered.setdefault(message.id, message)
        if not message.queued:
            message.queued = True
            self._queue.append(message)

    def hold_back(self, message: Message, until: float) -> None:
        """Send `message` again at `until`, not before."""
        message.queued = False
        heapq.heappush(self._held_back, (until, next(self._counter), message))

    def drop(self, message: Message) -> None:
        """Never send `message` again."""
        self._unanswered.pop(message.id, None)
        message.queued = False

    def answered(self, of: str) -> Message | None:
        """The message that was answered, forgotten from here on; None if it was already."""
        message = self._unanswered.pop(of, None)
        if message is not None:
            message.queued = False
        return message

    def unanswered(self, of: str) -> Message | None:
        """The message of that id, if it has no answer yet."""
        return self._unanswered.get(of)

    def pending(self, types: frozenset[str] | None = None) -> Iterator[Message]:
        """Messages without an answer, of these types, in the order in which they were made."""
        return (m for m in list(self._unanswered.values()) if types is None or m.type in types)

    def disconnected(self) -> None:
        """Nothing is sent until the next `begin`."""
        self._epoch = None

    def begin(self, epoch: int) -> None:
        """A new epoch: everything unanswered goes again, final reports first; latest-only messages are forgotten."""
        self._epoch, self._seq = epoch, 0
        self._queue.clear()
        self._sent.clear()
        self._held_back.clear()
        for old in self.pending(LATEST_TYPES):
            self.drop(old)
        waiting = list(self._unanswered.values())
        for message in sorted(waiting, key=lambda m: m.type not in FINAL_TYPES):
            message.queued = False
            self.again(message)

    def take(self, now: float, bytes_max: int) -> list[bytes]:
        """What is to be sent now, up to about `bytes_max`; each gets the next number of the epoch."""
        if self._epoch is None:
            return []
        self._release(now)
        taken: list[bytes] = []
        size = 0
        while self._queue and size < bytes_max:
            message = self._queue.popleft()
            if not message.queued:
                continue
            message.queued = False
            message.sent_at = now
            if message.first_sent_at is None:
                message.first_sent_at = now
            if message.id in self._unanswered:
                self._sent.append((now, message))
            self._seq += 1
            frame = numbered(message.body, self._epoch, self._seq)
            size += len(frame)
            taken.append(frame)
        return taken

    def has_due(self, now: float) -> bool:
        """Whether `take` may have something."""
        due = self.next_due()
        return bool(self._queue) or (due is not None and due <= now)

    def next_due(self) -> float | None:
        """When `take` may have something although nothing was added."""
        while self._sent and not self._waits(*self._sent[0]):
            self._sent.popleft()
        due = [self._sent[0][0] + RESEND_AFTER_S] if self._sent else []
        if self._held_back:
            due.append(self._held_back[0][0])
        return min(due, default=None)

    def _release(self, now: float) -> None:
        while self._sent and self._sent[0][0] + RESEND_AFTER_S <= now:
            sent_at, message = self._sent.popleft()
            if self._waits(sent_at, message) and not self._is_held_back(message):
                self.again(message)
        while self._held_back and self._held_back[0][0] <= now:
            message = heapq.heappop(self._held_back)[2]
            if message.id in self._unanswered:
                self.again(message)

    def _waits(self, sent_at: float, message: Message) -> bool:
        """Whether what was sent then has no answer yet, and was not sent again since."""
        return message.id in self._unanswered and message.sent_at == sent_at

    def _is_held_back(self, message: Message) -> bool:
        return any(held is message for _, _, held in self._held_back)
