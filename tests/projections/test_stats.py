"""Figures over a time: held against a recount of the events themselves, and by hand where a rule is small."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from commands.events import Event
from commands.reasons import Refusal
from projections import scans
from projections import stats as stats_module
from projections.minutes import (
    KEPT_MS,
    MINUTE_MS,
    ROBOT_STEP_MS,
    bounds_ms,
    bucket,
    kept_from,
    row_name,
    spread,
    start_and_name,
)
from projections.rows import Entity
from projections.stats import STEPS_MAX, Span, Stats, error_share, percentile, span_of, times_of
from tests.projections.world import POOL, World
from tests.support.stored_events import ListLog, assigned, completed, expired, failed, leased, submitted, write_lives

HOUR = 3_600_000


class Jittered(ListLog):
    """A log in which time goes on at random, with gaps of minutes, and tasks wait and run for all kinds of times."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = random.Random(seed)

    def write(self, pool: str, event: Event, after_ms: int = 1) -> Event:
        for name in ("waited_ms", "ran_ms"):
            if hasattr(event, name):
                setattr(event, name, int(2 ** self._rng.uniform(0, 22)) - 1)
        gap = self._rng.randrange(10 * MINUTE_MS) if self._rng.random() < 0.02 else self._rng.randrange(500)
        return super().write(pool, event, gap)


def stats_over(world: World, start: int, end: int, step_ms: int = MINUTE_MS, pool: str = POOL) -> Stats:
    """The figures, which must not be refused."""
    found = world.tables.stats(pool, start, end, step_ms).value
    assert isinstance(found, dict), found
    return found


def recount(world: World, start: int, end: int, pool: str = POOL) -> dict[str, Any]:
    """The same from the events, one by one: counts, waiting and running times, how many wait at the end."""
    counts, waited, ran, waiting = Counter[str](), list[int](), list[int](), 0
    for record in world.log.records():
        if record.key != pool:
            continue
        event = json.loads(record.value)
        name, at = event["type"].partition(".")[0], event["occurred_at"]
        if at >= end:
            continue
        if "to" in event:
            waiting += (event["to"] == "WAITING") - (event.get("from") == "WAITING")
        if at < start:
            continue
        counts[name] += 1
        if event.get("to") in ("CANCELLED", "DEAD") and event["from"] != event["to"]:
            counts[event["to"]] += 1
        if name == "TaskAssigned":
            waited.append(event["waited_ms"])
        if name == "TaskCompleted" and "ran_ms" in event:
            ran.append(event["ran_ms"])
    return {"counts": counts, "waited": sorted(waited), "ran": sorted(ran), "waiting": waiting}


# ---- against the events ----


@pytest.mark.parametrize("seed", range(3))
def test_figures_are_what_the_events_say(tmp_path: Path, seed: int) -> None:
    """Counts, sums and queue length of random lives in two pools over several spans; percentiles within a bucket."""
    world = World(tmp_path, Jittered(seed), begun=False)
    write_lives(world.log, seed=seed, tasks=200, pools=(POOL, "hall-b"))
    world.catch_up()
    rng, last = random.Random(seed), world.log.now
    first = min(record.appended_at for record in world.log.records())
    assert last - first > HOUR
    spans = [(first, last + MINUTE_MS)] + [sorted(rng.sample(range(first, last), 2)) for _ in range(4)]
    for begin, finish in spans:
        found = stats_over(world, begin, finish)
        said = recount(world, found["start"], found["end"])
        events = found["total"]["events"]
        for word, name in (
            ("submitted", "TaskSubmitted"),
            ("assigned", "TaskAssigned"),
            ("completed", "TaskCompleted"),
            ("failed", "AttemptFailed"),
            ("expired", "LeaseExpired"),
            ("withdrawn", "AssignmentWithdrawn"),
            ("cancelled", "CANCELLED"),
            ("dead", "DEAD"),
        ):
            assert events.get(word, 0) == said["counts"][name], word
        assert found["total"]["waiting"] == said["waiting"]
        for name in ("waited", "ran"):
            times: Any = found["total"].get(name, {})
            assert times.get("count", 0) == len(said[name])
            if said[name]:
                assert times["mean_ms"] == round(sum(said[name]) / len(said[name]))
                for percent in (50, 95, 99):
                    true = said[name][max(0, -(-len(said[name]) * percent // 100) - 1)]
                    low, high = bounds_ms(bucket(true))
                    assert low - 1 <= times[f"p{percent}_ms"] <= high + 1
        for step in rng.sample(found["steps"], min(5, len(found["steps"]))):
            assert step["waiting"] == recount(world, step["at"], step["at"] + MINUTE_MS)["waiting"]
        assert sum(step["events"].get("completed", 0) for step in found["steps"]) == events.get("completed", 0)
        assert sum(kind["waiting"] for kind in found["kinds"]) == said["waiting"]
    world.close()


# ---- by hand ----


def test_a_minute_of_two_kinds(tmp_path: Path) -> None:
    """Throughput, error share, times and queue of each kind and of the whole."""
    world = World(tmp_path)
    begin = -(-world.log.now // MINUTE_MS) * MINUTE_MS
    world.log.now = begin
    world.write(submitted("a"), submitted("b"), submitted("c", kind="paint"), submitted("d", kind="paint"))
    world.write(assigned("a", waited_ms=2_000), leased("a"), completed("a", ran_ms=10_000))
    world.write(assigned("b", waited_ms=4_000), leased("b"), failed("b"))
    world.write(assigned("c", waited_ms=1), leased("c"), expired("c", to="WAITING"))
    found = stats_over(world, begin, begin + MINUTE_MS)

    assert found["total"]["events"] == {
        "assigned": 3, "completed": 1, "expired": 1, "failed": 1, "submitted": 4,
    }  # fmt: skip
    assert (found["total"]["waiting"], found["total"]["completed_per_minute"]) == (3, 1.0)
    assert found["total"]["error_share"] == pytest.approx(2 / 3, abs=0.001)
    weld, paint = {kind["kind"]: kind for kind in found["kinds"]}["weld"], found["kinds"][0]
    assert (paint["kind"], paint["waiting"], paint["error_share"]) == ("paint", 2, 1.0)
    assert (weld["waited"]["count"], weld["waited"]["mean_ms"]) == (2, 3_000)
    assert weld["ran"]["p50_ms"] == pytest.approx(10_000, rel=0.2)
    assert [robot["robot"] for robot in found["robots"]] == ["r1"]
    assert found["robots"][0]["events"] == {"completed": 1, "failed": 1, "lost": 1}
    assert found["robots"][0]["error_share"] == pytest.approx(2 / 3, abs=0.001)
    world.close()


def test_the_use_of_a_robot(tmp_path: Path) -> None:
    """Slots times the time held, in each ten minutes; what goes on counts, too."""
    world = World(tmp_path)
    begin = -(-world.log.now // ROBOT_STEP_MS) * ROBOT_STEP_MS
    world.log.now = begin
    slots = world.robot()["slots"]
    world.write(submitted("a"), assigned("a"), leased("a"))
    world.log.now = begin + 15 * MINUTE_MS
    world.write(completed("a"))
    world.write(submitted("b"), assigned("b"))
    world.log.now = begin + 18 * MINUTE_MS
    world.write(submitted("c"))

    def held_minutes(start: int, end: int) -> int:
        return round(stats_over(world, start, end)["robots"][0]["held_ms"] / MINUTE_MS)

    assert held_minutes(begin, begin + ROBOT_STEP_MS) == 10
    assert held_minutes(begin + ROBOT_STEP_MS, begin + 2 * ROBOT_STEP_MS) == 5 + 3
    whole = stats_over(world, begin, begin + 2 * ROBOT_STEP_MS)["robots"][0]
    assert whole["slots"] == slots
    assert whole["use"] == pytest.approx(18 / 18 / slots, abs=0.01)
    world.close()


def test_rows_leave_when_their_days_are_over(tmp_path: Path) -> None:
    """Kinds after a week, robots after two days; the queue's length stays right; a rebuild says the same."""
    world = World(tmp_path / "live")
    world.write(submitted("a"), submitted("b"), assigned("b"), leased("b"), completed("b"))
    for days in (1, 3, 9):
        world.log.now += days * 86_400_000
        world.write(submitted(f"c{days}"), assigned(f"c{days}"), leased(f"c{days}"), completed(f"c{days}"))
    again = World(tmp_path / "again", world.log, begun=False)
    again.catch_up()

    for one in (world, again):
        with one.tables._reader._lock:
            store = one.tables._reader._current()
            left = {entity: list(scans.entities_of(store, entity, POOL, "")) for entity in KEPT_MS}
        for entity, rows in left.items():
            assert rows
            assert all(start_and_name(name)[0] >= kept_from(entity, world.log.now) for name, _ in rows)
        assert stats_over(one, world.log.now - HOUR, world.log.now + 1)["total"]["waiting"] == 1
    assert world.tables.digest() == again.tables.digest()
    world.close()
    again.close()


# ---- small rules ----


def test_buckets() -> None:
    """Each duration lies within its bucket, and a bucket is a fifth wide at most."""
    assert bucket(0) == -1
    for ms in [*range(1, 2_000), 86_400_000, 2**53]:
        low, high = bounds_ms(bucket(ms))
        assert low <= ms * (1 + 1e-9)
        assert ms < high * (1 + 1e-9)
        assert high / low < 1.2


def test_percentiles_lie_evenly_within_a_bucket() -> None:
    """By the rank among all."""
    buckets = [(-1, 2), (0, 2), (40, 4)]
    assert percentile(buckets, 1) == 0.5
    assert percentile(buckets, 2) == 1.0
    low, high = bounds_ms(40)
    assert percentile(buckets, 6) == pytest.approx((low + high) / 2)
    assert percentile(buckets, 9) == high
    assert times_of({"w3": 1, "r3": 5, "waited_ms": 2, "w": 9}, "w", 2)["count"] == 1
    assert times_of({}, "w", 0) == {}
    assert error_share({"cancelled": 3}) is None
    assert error_share({"completed": 3, "failed": 1}) == 0.25


def test_a_time_is_spread_over_ten_minutes() -> None:
    """As far back as rows stay."""
    assert spread(5, 5) == []
    assert spread(ROBOT_STEP_MS - 1, ROBOT_STEP_MS + 2) == [(0, 1), (ROBOT_STEP_MS, 2)]
    year = 365 * 86_400_000
    parts = spread(0, year)
    assert parts[0][0] == kept_from(Entity.ROBOT_STEP, year)
    assert sum(ms for _, ms in parts) == year - parts[0][0]


def test_names_of_rows_sort_by_time() -> None:
    """Whatever the kind is called."""
    assert start_and_name(row_name(60_000, "a/b")) == (60_000, "a/b")
    assert row_name(60_000, "z") < row_name(120_000, "a")


@pytest.mark.parametrize(
    ("start", "end", "step_ms", "field"),
    [
        (0, HOUR, 0, "/step_s"),
        (0, HOUR, 61_000, "/step_s"),
        (HOUR, HOUR, MINUTE_MS, "/to"),
        (HOUR, 0, MINUTE_MS, "/to"),
        (0, (STEPS_MAX + 1) * MINUTE_MS, MINUTE_MS, "/step_s"),
        (-30 * 86_400_000, HOUR, 86_400_000, "/from"),
    ],
)
def test_spans_that_are_refused(start: int, end: int, step_ms: int, field: str) -> None:
    """Empty, too fine, or longer ago than rows stay."""
    now = 100 * 86_400_000
    found = span_of(now - HOUR + start, now - HOUR + end, step_ms, now)
    assert isinstance(found, Refusal)
    assert (found.reason, found.field) == ("invalid_field", field)
    assert span_of(now - 90_000, now - 1, MINUTE_MS, now) == Span(now - 2 * MINUTE_MS, now, MINUTE_MS)


def test_what_one_answer_adds_up_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than that: refused with what to do."""
    world = World(tmp_path)
    world.write(submitted("a"), submitted("b", kind="paint"))
    monkeypatch.setattr(stats_module, "ROWS_MAX", 1)
    found = world.tables.stats(POOL, world.log.now - HOUR, world.log.now, MINUTE_MS).value
    assert isinstance(found, Refusal)
    assert (found.field, "begin later" in found.text) == ("/from", True)
    assert world.tables.stats("nowhere", world.log.now - HOUR, world.log.now, MINUTE_MS).value is None
    world.close()
