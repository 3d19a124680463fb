"""What happened when: counts of each minute and kind, and of each ten minutes and robot, for figures over a time.

A row is a flat object of whole numbers that only grow, so that any rows can be added. Words are counts of events;
`in` and `out` are tasks that began and ended waiting; `w<n>` and `r<n>` count waiting and running times in bucket n
(see `bucket`); `waited_ms`, `ran_ms` are their sums; `held_ms` is slots times the time that they were held.
"""

from math import log2
from typing import TYPE_CHECKING, Final

from commands.vocabulary import HELD_STATES
from projections.cards import Stored, TaskCard
from projections.robot_cards import ENDS
from projections.rows import Entity

if TYPE_CHECKING:
    from projections.hot_cards import HotCards, HotPool

MINUTE_MS: Final = 60_000
ROBOT_STEP_MS: Final = 600_000
KIND_DAYS: Final = 7
ROBOT_DAYS: Final = 2
DAY_MS: Final = 86_400_000
KEPT_MS: Final[dict[Entity, int]] = {
    Entity.KIND_MINUTE: KIND_DAYS * DAY_MS,
    Entity.ROBOT_STEP: ROBOT_DAYS * DAY_MS,
}
"""How long the rows stay, in the pool's time."""
BUCKETS_PER_DOUBLING: Final = 4

Counts = dict[str, int]

_WORDS: Final[dict[str, str]] = {
    "TaskSubmitted.v1": "submitted",
    "TaskAssigned.v1": "assigned",
    **{name: "expired" if word == "lost" else word for name, word in ENDS.items()},
    "TaskRedriven.v1": "redriven",
    "ReportedLate.v1": "late",
}
"""Event type -> the word under which it is counted."""
_ENDED: Final = {"CANCELLED": "cancelled", "DEAD": "dead", "DISCARDED": "discarded"}
"""State that a task came into -> the word under which that is counted beside."""


def bucket(ms: int) -> int:
    """The bucket of a duration: four for each doubling from 1 ms on; -1 holds what is below."""
    return int(log2(ms) * BUCKETS_PER_DOUBLING) if ms >= 1 else -1


def bounds_ms(number: int) -> tuple[float, float]:
    """From where to where a bucket reaches, in ms."""
    if number < 0:
        return 0.0, 1.0
    return 2.0 ** (number / BUCKETS_PER_DOUBLING), 2.0 ** ((number + 1) / BUCKETS_PER_DOUBLING)


def row_name(start_ms: int, name: str) -> str:
    """Under which name a row lies: the start of its time, so that rows sort by it, and the kind or robot."""
    return f"{start_ms:015d}/{name}"


def start_and_name(row: str) -> tuple[int, str]:
    """What `row_name` was made of."""
    return int(row[:15]), row[16:]


def kept_from(entity: Entity, now_ms: int) -> int:
    """The start of the oldest rows that stay at `now_ms`: whole hours, so that rows leave many at a time."""
    return max(0, now_ms - KEPT_MS[entity]) // 3_600_000 * 3_600_000


def task_counted(cards: "HotCards", pool: "HotPool", before: TaskCard | None, after: TaskCard, event: Stored) -> None:
    """An event about one task: counted in its minute for the kind, and for the robot that held it."""
    name, was, now = event["type"], None if before is None else before["state"], after["state"]
    word = _WORDS.get(name)
    ended = _ENDED.get(now) if was != now else None
    moved = (was == "WAITING") != (now == "WAITING")
    if word is not None or ended is not None or moved:
        row = _kind_row(cards, pool, event["occurred_at"], after["kind"])
        if word is not None:
            _add(row, word)
        if ended is not None:
            _add(row, ended)
        if moved:
            _add(row, "in" if now == "WAITING" else "out")
        if name == "TaskAssigned.v1":
            _add(row, f"w{bucket(event['waited_ms'])}")
            _add(row, "waited_ms", event["waited_ms"])
        elif name == "TaskCompleted.v1" and "ran_ms" in event:
            _add(row, f"r{bucket(event['ran_ms'])}")
            _add(row, "ran_ms", event["ran_ms"])
    if name in ENDS and "robot" in event:
        _add(_robot_row(cards, pool, event["occurred_at"], event["robot"]), ENDS[name])
    if was in HELD_STATES and now not in HELD_STATES and before is not None and "assigned_at" in before:
        for start, held_ms in spread(before["assigned_at"], event["occurred_at"]):
            row = _robot_row(cards, pool, start, before["robot"])
            _add(row, "held_ms", held_ms * before["slot_cost"])


def spread(since: int, until: int) -> list[tuple[int, int]]:
    """(start of each ten minutes, ms within them) of a time, as far back as rows stay."""
    since = max(since, kept_from(Entity.ROBOT_STEP, until))
    parts = []
    while since < until:
        end = min(until, (since // ROBOT_STEP_MS + 1) * ROBOT_STEP_MS)
        parts.append((since // ROBOT_STEP_MS * ROBOT_STEP_MS, end - since))
        since = end
    return parts


def _kind_row(cards: "HotCards", pool: "HotPool", at: int, kind: str) -> Counts:
    """The row that counts for a kind at an instant, to be changed in place; looked up once a batch."""
    start = at - at % MINUTE_MS
    row = pool.kind_minutes.get((start, kind))
    if row is None:
        row = pool.kind_minutes[start, kind] = _own_row(cards, pool, Entity.KIND_MINUTE, row_name(start, kind))
    return row


def _robot_row(cards: "HotCards", pool: "HotPool", at: int, robot: str) -> Counts:
    """The same for a robot."""
    start = at - at % ROBOT_STEP_MS
    row = pool.robot_steps.get((start, robot))
    if row is None:
        row = pool.robot_steps[start, robot] = _own_row(cards, pool, Entity.ROBOT_STEP, row_name(start, robot))
    return row


def _own_row(cards: "HotCards", pool: "HotPool", entity: Entity, key: str) -> Counts:
    row: Counts | None = cards.own(entity, pool.name, key)
    if row is None:
        row = {}
        cards.put(entity, pool.name, key, row)
    return row


def _add(row: Counts, word: str, count: int = 1) -> None:
    row[word] = row.get(word, 0) + count
