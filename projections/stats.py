"""Figures over a time: throughput, waiting and running times, failures, queue length and the use of robots.

They are added up from the rows of `minutes.py`; percentiles lie within a bucket of their true value (a fifth of it at
most). The queue's length at the end of a step is reckoned back from now: what waits now, less what began and plus
what ended waiting since.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypedDict

from commands.reasons import Refusal
from projections.cards import RobotCard, TaskCard
from projections.figures import Overview
from projections.minutes import (
    MINUTE_MS,
    ROBOT_STEP_MS,
    Counts,
    bounds_ms,
    kept_from,
    row_name,
    spread,
    start_and_name,
)
from projections.rows import Entity, Table, after, entity_key, load, name_key
from projections.scans import entities_of
from projections.store import Store

ROWS_MAX: Final = 100_000
"""Rows of minutes that one answer adds up, at most."""
STEPS_MAX: Final = 1_440
ROBOTS_MAX: Final = 1_000
OPEN_MAX: Final = 10_000
"""Running attempts that count towards the use of robots, at most."""
PERCENTILES: Final = (50, 95, 99)


class Times(TypedDict, total=False):
    """Waiting or running times: how many, their mean and percentiles, all in ms."""

    count: int
    mean_ms: int
    p50_ms: int
    p95_ms: int
    p99_ms: int


class Sums(TypedDict, total=False):
    """Figures of a kind, a step or a pool. `events`: counts by word; `error_share`: of the attempts that came to an
    end by their robot or by silence, those that failed or expired; `waiting`: how many wait at the end of it.
    """

    kind: str
    at: int
    waiting: int
    events: Counts
    completed_per_minute: float
    error_share: float
    waited: Times
    ran: Times


class RobotSums(TypedDict, total=False):
    """Figures of a robot. `held_ms`: slots times the time that attempts held them; `use`: of all its slots' time."""

    robot: str
    events: Counts
    error_share: float
    held_ms: int
    slots: int
    use: float


class Stats(TypedDict):
    """Figures from `start` to `end`: as a whole, by kind, by step; of robots from `robots_start` to `robots_end`."""

    pool: str
    start: int
    end: int
    step_ms: int
    total: Sums
    kinds: list[Sums]
    steps: list[Sums]
    robots_start: int
    robots_end: int
    robots: list[RobotSums]
    robots_left_out: int


@dataclass(frozen=True, slots=True)
class Span:
    """From `start` to `end` (ms since 1970) in steps of `step_ms`: whole minutes all of them."""

    start: int
    end: int
    step_ms: int


def span_of(start: int, end: int, step_ms: int, now_at: int) -> Span | Refusal:
    """The span in whole minutes that holds what was asked; refused where it is empty, too fine or too long ago."""
    first, last = start // MINUTE_MS * MINUTE_MS, -(-end // MINUTE_MS) * MINUTE_MS
    if step_ms < MINUTE_MS or step_ms % MINUTE_MS:
        return Refusal("invalid_field", "a step is whole minutes: 60, 300, 3600 ...", "/step_s")
    if last <= first:
        return Refusal("invalid_field", "the end lies behind the start", "/to")
    if (last - first) // step_ms > STEPS_MAX:
        return Refusal("invalid_field", f"these are more than {STEPS_MAX} steps: take longer ones", "/step_s")
    if first < kept_from(Entity.KIND_MINUTE, now_at):
        return Refusal("invalid_field", "the figures of that time have left the tables: replay the log", "/from")
    return Span(first, last, step_ms)


def stats_of(store: Store, pool: str, seen: Overview, span: Span, now_at: int) -> Stats | Refusal:
    """The figures of a pool. `seen`: its figures as they stand in the same tables. Refused where it is too much."""
    prefix = entity_key(Entity.KIND_MINUTE, pool)
    found = store.scan(Table.ENTITIES, prefix + row_name(span.start, "").encode(), after(prefix))
    rows = [(*start_and_name(key[len(prefix) :].decode()), load(content)) for key, content in islice(found, ROWS_MAX)]
    if next(found, None) is not None:
        return _too_much("minutes and kinds")
    waiting = {kind["kind"]: kind["counts"].get("WAITING", 0) for kind in seen["kinds"]}
    for start, kind, row in rows:
        if start >= span.end:
            waiting[kind] = waiting.get(kind, 0) - _grown(row)
    inside = [one for one in rows if one[0] < span.end]
    start = max(span.start // ROBOT_STEP_MS * ROBOT_STEP_MS, kept_from(Entity.ROBOT_STEP, now_at))
    end = max(start, -(-span.end // ROBOT_STEP_MS) * ROBOT_STEP_MS)
    robots = _robots(store, pool, start, end, now_at)
    if isinstance(robots, Refusal):
        return robots
    return {
        "pool": pool,
        "start": span.start,
        "end": span.end,
        "step_ms": span.step_ms,
        "total": _summed([row for _, _, row in inside], span.end - span.start, sum(waiting.values())),
        "kinds": list(_by_kind(inside, waiting, span)),
        "steps": _by_step(inside, sum(waiting.values()), span),
        "robots_start": start,
        "robots_end": end,
        "robots": robots[:ROBOTS_MAX],
        "robots_left_out": max(0, len(robots) - ROBOTS_MAX),
    }


def _too_much(what: str) -> Refusal:
    text = f"more than {ROWS_MAX} rows of {what} would be added up: begin later"
    return Refusal("invalid_field", text, "/from")


# ---- kinds and steps ----


def _by_kind(rows: list[tuple[int, str, Counts]], waiting: dict[str, int], span: Span) -> Iterator[Sums]:
    by_kind: defaultdict[str, list[Counts]] = defaultdict(list)
    for _, kind, row in rows:
        by_kind[kind].append(row)
    for kind in sorted(by_kind.keys() | {kind for kind, count in waiting.items() if count}):
        sums = _summed(by_kind[kind], span.end - span.start, waiting.get(kind, 0))
        yield {"kind": kind, **sums}


def _by_step(rows: list[tuple[int, str, Counts]], waiting: int, span: Span) -> list[Sums]:
    """The steps in order; each says how many wait at its end."""
    by_step: defaultdict[int, list[Counts]] = defaultdict(list)
    for start, _, row in rows:
        by_step[(start - span.start) // span.step_ms].append(row)
    steps: list[Sums] = []
    for number in range(-(-(span.end - span.start) // span.step_ms) - 1, -1, -1):
        at = span.start + number * span.step_ms
        steps.append({"at": at, **_summed(by_step[number], min(span.step_ms, span.end - at), waiting)})
        waiting -= sum(map(_grown, by_step[number]))
    steps.reverse()
    return steps


def _grown(row: Counts) -> int:
    return row.get("in", 0) - row.get("out", 0)


def _summed(rows: list[Counts], ms: int, waiting: int) -> Sums:
    total: defaultdict[str, int] = defaultdict(int)
    for row in rows:
        for word, count in row.items():
            total[word] += count
    events = {word: total[word] for word in sorted(total) if word.isalpha() and word not in ("in", "out")}
    sums: Sums = {"waiting": waiting, "events": events}
    sums["completed_per_minute"] = round(events.get("completed", 0) * MINUTE_MS / ms, 3)
    share = error_share(events)
    if share is not None:
        sums["error_share"] = share
    for name, letter in (("waited", "w"), ("ran", "r")):
        times = times_of(total, letter, total[f"{name}_ms"])
        if times:
            sums[name] = times  # type: ignore[literal-required]
    return sums


def error_share(events: Counts) -> float | None:
    """Failed and expired attempts of all that completed, failed or expired; None where there were none."""
    wrong = events.get("failed", 0) + events.get("expired", 0) + events.get("lost", 0)
    ends = events.get("completed", 0) + wrong
    return round(wrong / ends, 4) if ends else None


def times_of(total: Counts, letter: str, sum_ms: int) -> Times:
    """Count, mean and percentiles from the buckets under `letter`."""
    buckets = sorted((int(word[1:]), count) for word, count in total.items() if _is_bucket(word, letter))
    count = sum(number for _, number in buckets)
    if not count:
        return {}
    times: Times = {"count": count, "mean_ms": round(sum_ms / count)}
    for percent in PERCENTILES:
        times[f"p{percent}_ms"] = round(percentile(buckets, count * percent / 100))  # type: ignore[literal-required]
    return times


def _is_bucket(word: str, letter: str) -> bool:
    return word.startswith(letter) and word[1:].lstrip("-").isdigit()


def percentile(buckets: list[tuple[int, int]], rank: float) -> float:
    """The duration in ms below which `rank` of the counted ones lie, evenly spread within a bucket."""
    below = 0
    for number, count in buckets:
        if below + count >= rank:
            low, high = bounds_ms(number)
            return low + (high - low) * (rank - below) / count
        below += count
    return bounds_ms(buckets[-1][0])[1]


# ---- robots ----


def _robots(store: Store, pool: str, start: int, end: int, now_at: int) -> list[RobotSums] | Refusal:
    """The robots that are registered or did something, those that did most first."""
    prefix = entity_key(Entity.ROBOT_STEP, pool)
    first, last = prefix + row_name(start, "").encode(), prefix + row_name(end, "").encode()
    sums: defaultdict[str, Counts] = defaultdict(lambda: defaultdict(int))
    rows = store.scan(Table.ENTITIES, first, last)
    for key, content in islice(rows, ROWS_MAX):
        for word, count in load(content).items():
            sums[start_and_name(key[len(prefix) :].decode())[1]][word] += count
    if next(rows, None) is not None:
        return _too_much("robots and ten minutes")
    cards: dict[str, RobotCard] = dict(entities_of(store, Entity.ROBOT, pool, ""))
    for robot, held_ms in _held_now(store, pool, cards, start, end, now_at):
        sums[robot]["held_ms"] += held_ms
    found = [_robot(name, sums[name], cards.get(name), start, min(end, now_at)) for name in {*sums, *cards}]
    return sorted(found, key=lambda one: (-one["held_ms"], one["robot"]))


def _held_now(
    store: Store, pool: str, cards: dict[str, RobotCard], start: int, end: int, now_at: int
) -> Iterator[tuple[str, int]]:
    """(robot, slots times ms) of attempts that go on, within the span."""
    held = [(name, task) for name, card in cards.items() for task in card["attempts"]][:OPEN_MAX]
    contents = store.get_many(Table.TASKS, [name_key(pool, task) for _, task in held])
    for (robot, _), content in zip(held, contents, strict=True):
        if content is not None:
            task: TaskCard = load(content)
            parts = spread(task["assigned_at"], now_at) if "assigned_at" in task else []
            yield robot, task["slot_cost"] * sum(ms for at, ms in parts if start <= at < end)


def _robot(name: str, counts: Counts, card: RobotCard | None, start: int, end: int) -> RobotSums:
    events = {word: count for word, count in sorted(counts.items()) if word != "held_ms"}
    found: RobotSums = {"robot": name, "events": events, "held_ms": counts.get("held_ms", 0)}
    share = error_share(events)
    if share is not None:
        found["error_share"] = share
    slots = 0 if card is None else card["slots"]
    there_ms = end - max(start, 0 if card is None else card["registered_at"])
    if slots and there_ms > 0:
        found["slots"], found["use"] = slots, round(min(1.0, found["held_ms"] / (slots * there_ms)), 4)
    return found
