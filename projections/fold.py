"""Which cards an event changes: the table of all event types, and the loop over a batch.

Events are read as the JSON they are, not as dataclasses: that takes a third of the time, and what is in the log was
written by `encode_event`. An event that lacks what its type needs stops the projector with a sentence.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pydantic_core import from_json

from commands.settings import FORMAT
from commands.vocabulary import HELD_STATES
from projections import pool_cards, robot_cards, task_cards
from projections.cards import Stored, TaskCard
from projections.hot_cards import HotCards, HotPool
from projections.index_rows import CHECKPOINT, ERROR_DETAIL, PAYLOAD, RESULT, body_keys
from projections.minutes import task_counted
from projections.robot_cards import ENDS, ROBOT_RULES
from projections.rows import Entity, body_key, dump
from projections.task_cards import TASK_RULES
from projections.totals import TOTALS
from streams.port import Record

DECODED_AT_ONCE: Final = 64
"""Events decoded before they are applied: enough to read their cards together, few enough for the processor's cache."""


class ProjectionFault(Exception):
    """The tables cannot go on; the message is a sentence that names the record and says what to do."""


class Fold:
    """Applies events to `cards`. `repeated` counts events that came again and changed nothing."""

    def __init__(self, cards: HotCards) -> None:
        self._cards = cards
        self._pools: dict[str, HotPool] = {}
        self.repeated = 0

    def fold(self, records: Sequence[Record]) -> None:
        """Applies events in order. Raises ProjectionFault, StoreFault; the fold is of no use after that."""
        self._pools = {}
        for start in range(0, len(records), DECODED_AT_ONCE):
            self._fold_some(records[start : start + DECODED_AT_ONCE])

    def _fold_some(self, records: Sequence[Record]) -> None:
        lasts: dict[int, Record] = {}
        for record, pool, event in self._decoded(records):
            try:
                self._apply(record, pool, event)
            except (KeyError, TypeError, AttributeError, IndexError) as error:
                raise ProjectionFault(
                    f"The event at {_where(record)} is not as its type {event.get('type')} must be ({error!r}): "
                    "run `fleetlog audit verify` on the log."
                ) from error
            lasts[record.partition] = record
        for partition, record in lasts.items():
            at = self._cards.at(partition)
            at.next, at.last, at.hash = record.offset + 1, record.offset, (record.header("hash") or b"").hex()

    def _decoded(self, records: Sequence[Record]) -> list[tuple[Record, HotPool, Stored]]:
        """The events with their pools; all cards that they will ask for are read at once."""
        pools, found = self._pools, []
        wanted: dict[tuple[str, str], None] = {}
        for record in records:
            event = _decoded(record)
            name = event.get("pool")
            if not isinstance(name, str):
                raise ProjectionFault(f"The event at {_where(record)} names no pool: run `fleetlog audit verify`.")
            pool = pools.get(name)
            if pool is None:
                pool = pools[name] = self._cards.pool(name, record.partition)
            task = event.get("task")
            if isinstance(task, str) and task not in pool.cards:
                wanted[name, task] = None
            found.append((record, pool, event))
        if wanted:
            self._cards.read_ahead(wanted)
        return found

    def _apply(self, record: Record, pool: HotPool, event: Stored) -> None:
        sequence: int = event["sequence"]
        if sequence != pool.sequence + 1:
            if sequence <= pool.sequence:
                self.repeated += 1
                return
            raise ProjectionFault(
                f"The events of pool {pool.name} go from sequence {pool.sequence} to {sequence} at {_where(record)}: "
                "the log lacks events, run `fleetlog audit verify` on it."
            )
        pool.sequence, pool.last_at = sequence, event["occurred_at"]
        if not pool.offsets:
            pool.first = sequence
        pool.offsets.append(record.offset)
        name = event["type"]
        count = TOTALS.get(name)
        if count is not None:
            count(pool.totals, event)
        rule = TASK_RULES.get(name)
        if rule is not None:
            _about_task(self._cards, pool, rule, event)
        elif name in EVENT_RULES:
            EVENT_RULES[name](self._cards, pool, event)
        else:
            raise ProjectionFault(
                f"The event at {_where(record)} is of the type {name}, which this version does not know: "
                "run the projector in the version that wrote it."
            )


def _about_task(cards: HotCards, pool: HotPool, rule: task_cards.TaskRule, event: Stored) -> None:
    """An event with a task of its own: the task, its bodies, and whoever holds it."""
    task, name = event["task"], event["type"]
    before = cards.task(pool, task)
    after = pool.cards[task] = rule(before, event)
    _told(pool, task, event)
    if after is None:
        return
    keep = _BODIES.get(name)
    if keep is not None:
        keep(pool, before, after, event)
    was = before["robot"] if before is not None and before["state"] in HELD_STATES else None
    now = after["robot"] if after["state"] in HELD_STATES else None
    holds = before is not None and before.get("holds") is not after.get("holds")
    if holds or (was is not None and now is not None and was != now):
        names = {was, now, *(hold["robot"] for one in (before, after) if one for hold in one.get("holds", ()))}
        _robots_changed(cards, pool, names, after, event)
    elif was != now or name in ENDS:
        _robots_changed(cards, pool, (was or now or event.get("robot"),), after, event)
    if "target" in after:
        _target_changed(cards, pool, after["target"], before, after, event)
    task_counted(cards, pool, before, after, event)
    if name == "TaskSubmitted.v1":
        _submitted(cards, pool, before, after, event)


def _told(pool: HotPool, task: str, event: Stored) -> None:
    """The event belongs to the task's history."""
    numbers = pool.history.get(task)
    if numbers is None:
        pool.history[task] = [event["sequence"], pool.offsets[-1]]
    else:
        numbers += (event["sequence"], pool.offsets[-1])


def _keep_payload(pool: HotPool, before: TaskCard | None, after: TaskCard, event: Stored) -> None:
    """A new life of an id has none of the bodies of the former one."""
    if before is not None:
        pool.bodies.update(dict.fromkeys(body_keys(before)))
    if "payload" in event:
        content = pool.bodies[body_key(pool.name, after["id"], PAYLOAD)] = dump(event["payload"])
        after["payload_bytes"] = len(content)


def _keep_result(pool: HotPool, before: TaskCard | None, after: TaskCard, event: Stored) -> None:
    if "result" in event:
        content = pool.bodies[body_key(pool.name, after["id"], RESULT)] = dump(event["result"])
        after["result_bytes"] = len(content)


def _keep_error(pool: HotPool, before: TaskCard | None, after: TaskCard, event: Stored) -> None:
    """The detail of the last failure; a failure without one takes the former away."""
    key, detail = body_key(pool.name, after["id"], ERROR_DETAIL), event["error"].get("detail")
    if after.pop("error_detail", None):
        pool.bodies[key] = None
    if detail is not None:
        pool.bodies[key] = dump(detail)
        after["error_detail"] = True


def _keep_checkpoint(pool: HotPool, before: TaskCard | None, after: TaskCard, event: Stored) -> None:
    """The newest checkpoints; those that the card no longer lists go."""
    task, kept = after["id"], {number for number, *_ in after["checkpoints"]}
    for number, *_ in before.get("checkpoints", ()) if before is not None else ():
        if number not in kept:
            pool.bodies[body_key(pool.name, task, CHECKPOINT, number)] = None
    pool.bodies[body_key(pool.name, task, CHECKPOINT, event["number"])] = dump(event["checkpoint"])


_BODIES: Final[dict[str, Callable[[HotPool, TaskCard | None, TaskCard, Stored], None]]] = {
    "TaskSubmitted.v1": _keep_payload,
    "TaskCompleted.v1": _keep_result,
    "AttemptFailed.v1": _keep_error,
    "CheckpointSaved.v1": _keep_checkpoint,
}
"""Bodies lie in rows of their own, so that lists stay cheap; the card says which exist."""


def _robots_changed(
    cards: HotCards, pool: HotPool, names: Iterable[str | None], after: TaskCard, event: Stored
) -> None:
    """The robots that hold the task, held it or keep slots for it."""
    for name in names:
        robot = None if name is None else cards.own(Entity.ROBOT, pool.name, name)
        if robot is not None:
            robot_cards.robot_worked(robot, after, event)


def _target_changed(
    cards: HotCards, pool: HotPool, target: str, before: TaskCard | None, after: TaskCard, event: Stored
) -> None:
    card = cards.entity(Entity.TARGET, pool.name, target)
    new = robot_cards.target_after_task(card, target, before, after, event)
    cards.put(Entity.TARGET, pool.name, target, new)


def _submitted(cards: HotCards, pool: HotPool, before: TaskCard | None, after: TaskCard, event: Stored) -> None:
    """A new life of an id leaves the former target; a firing is counted by its schedule."""
    if before is not None and "target" in before and before["target"] != after.get("target"):
        _target_changed(cards, pool, before["target"], before, after, event)
    if "schedule" in after:
        name = after["schedule"]["id"]
        schedule = cards.entity(Entity.SCHEDULE, pool.name, name)
        if schedule is not None:
            cards.put(Entity.SCHEDULE, pool.name, name, pool_cards.schedule_fired(schedule, after))


# ---- events that are not about one task alone ----


def _about_robot(cards: HotCards, pool: HotPool, event: Stored) -> None:
    name = event["robot"]
    card = cards.entity(Entity.ROBOT, pool.name, name)
    cards.put(Entity.ROBOT, pool.name, name, ROBOT_RULES[event["type"]](card, event))
    _each(cards, pool, event.get("held", ()), task_cards.named_in_hello, event)


def _about_pool(cards: HotCards, pool: HotPool, event: Stored) -> None:
    new = pool_cards.POOL_RULES[event["type"]](cards.pool_card(pool.name), event)
    if new.get("format", FORMAT) > FORMAT:
        raise ProjectionFault(
            f"Pool {pool.name} is written in format {new['format']}, this version knows {FORMAT}: "
            "run the projector in the version that wrote it."
        )
    cards.put(Entity.POOL, pool.name, "", new)


def _about_window(cards: HotCards, pool: HotPool, event: Stored) -> None:
    _about_pool(cards, pool, event)
    _each(cards, pool, event.get("attempts", ()), task_cards.window_missed, event)
    for item in event.get("robots", ()):
        robot = cards.entity(Entity.ROBOT, pool.name, item["robot"])
        if robot is not None:
            cards.put(Entity.ROBOT, pool.name, item["robot"], robot_cards.robot_missed(robot, item, event))
    for name in event.get("returned", ()):
        robot = cards.entity(Entity.ROBOT, pool.name, name)
        if robot is not None:
            cards.put(Entity.ROBOT, pool.name, name, robot_cards.robot_returned(robot, event))


def _about_progress(cards: HotCards, pool: HotPool, event: Stored) -> None:
    _each(cards, pool, event["items"], task_cards.progressed, event)


def _each(
    cards: HotCards,
    pool: HotPool,
    items: Sequence[Stored],
    rule: Callable[[TaskCard, Stored, Stored], TaskCard],
    event: Stored,
) -> None:
    for item in items:
        card = cards.task(pool, item["task"])
        if card is not None:
            pool.cards[item["task"]] = rule(card, item, event)


def _about_clock(cards: HotCards, pool: HotPool, event: Stored) -> None:
    """What is open moves with the clock, or by the time without an owner; robots know which tasks they hold."""
    moved = task_cards.clock_moved if event["type"] == "ClockAccepted.v1" else task_cards.waits_moved
    _about_pool(cards, pool, event)
    for name in cards.names_of(Entity.ROBOT, pool.name):
        robot = cards.entity(Entity.ROBOT, pool.name, name) or {}
        held = [hold.rpartition("/")[0] for hold in robot.get("holds", ())]
        for task in dict.fromkeys([*robot.get("attempts", ()), *held]):
            card = cards.task(pool, task)
            if card is not None and card["at_sequence"] != event["sequence"]:
                pool.cards[task] = moved(card, event)


def _about_dispatch(cards: HotCards, pool: HotPool, event: Stored) -> None:
    """DispatchPaused, DispatchResumed: of the pool, a kind, a target or a task."""
    scope, name = event["scope"], event.get("name", "")
    if scope == "pool":
        cards.put(Entity.POOL, pool.name, "", pool_cards.pool_paused(cards.pool_card(pool.name), event))
    elif scope == "kind":
        cards.put(Entity.KIND, pool.name, name, pool_cards.kind_paused(cards.kind_card(pool.name, name), event))
    elif scope == "target":
        target = cards.entity(Entity.TARGET, pool.name, name)
        cards.put(Entity.TARGET, pool.name, name, robot_cards.target_paused(target, event))
    else:
        task = cards.task(pool, name)
        _told(pool, name, event)
        if task is not None:
            stopped = event["type"] == "DispatchPaused.v1"
            pool.cards[name] = task_cards.paused(task, event) if stopped else task_cards.resumed(task, event)


def _about_schedule(cards: HotCards, pool: HotPool, event: Stored) -> None:
    card = cards.entity(Entity.SCHEDULE, pool.name, event["schedule"])
    new = pool_cards.SCHEDULE_RULES[event["type"]](card, event)
    cards.put(Entity.SCHEDULE, pool.name, event["schedule"], new)


def _about_limit(cards: HotCards, pool: HotPool, event: Stored) -> None:
    new = pool_cards.limit_set(event) if event["type"] == "LimitSet.v1" else None
    cards.put(Entity.LIMIT, pool.name, f"{event['scope']}/{event['name']}", new)


def _about_requirement(cards: HotCards, pool: HotPool, event: Stored) -> None:
    new = pool_cards.requirement_unmet(event) if event["type"] == "RequirementUnsatisfiable.v1" else None
    cards.put(Entity.REQUIREMENT, pool.name, pool_cards.requirement_name(event), new)


def _no_card(cards: HotCards, pool: HotPool, event: Stored) -> None:
    """CommandNoted: found by its sequence, changes no card."""


EventRule = Callable[[HotCards, HotPool, Stored], None]

EVENT_RULES: Final[dict[str, EventRule]] = {
    **dict.fromkeys(ROBOT_RULES, _about_robot),
    **dict.fromkeys(pool_cards.POOL_RULES, _about_pool),
    **dict.fromkeys(pool_cards.SCHEDULE_RULES, _about_schedule),
    "WindowMissed.v1": _about_window,
    "ProgressNoted.v1": _about_progress,
    "ClockAccepted.v1": _about_clock,
    "OwnershipTaken.v1": _about_clock,
    "DispatchPaused.v1": _about_dispatch,
    "DispatchResumed.v1": _about_dispatch,
    "LimitSet.v1": _about_limit,
    "LimitRemoved.v1": _about_limit,
    "RequirementUnsatisfiable.v1": _about_requirement,
    "RequirementSatisfiable.v1": _about_requirement,
    "CommandNoted.v1": _no_card,
}
"""Every event type that is not in TASK_RULES."""


def _decoded(record: Record) -> Stored:
    try:
        event = from_json(record.value, cache_strings="keys")
    except ValueError as error:
        raise ProjectionFault(
            f"The event at {_where(record)} is not JSON ({error}): run `fleetlog audit verify` on the log."
        ) from error
    if not isinstance(event, dict):
        raise ProjectionFault(f"The event at {_where(record)} is not an object: run `fleetlog audit verify`.")
    return event


def _where(record: Record) -> str:
    return f"{record.topic.value}[{record.partition}] offset {record.offset}"
