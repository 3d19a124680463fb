"""The filter language: what each part means, and what is refused with the part named."""

from typing import Any

import pytest

from commands.reasons import Refusal
from projections.filters import FIELDS, FILTER_CHARS_MAX, PARTS_MAX, Subject, parse_filter
from tests.projections.world import filter_of

NOW = 1_790_000_000_000
HOUR = 3_600_000
TASK: dict[str, Any] = {
    "pool": "hall-a",
    "id": "t1",
    "state": "DEAD",
    "kind": "weld-fine",
    "target": "dock-7",
    "robot": "r1",
    "dead_reason": "poison",
    "labels": {"line": "3", "note": "two words"},
    "priority": 7,
    "attempt": 4,
    "submitted_at": NOW - 2 * HOUR,
    "done_twice": True,
    "schedule": {"id": "nightly", "instant": NOW},
}


@pytest.mark.parametrize(
    ("where", "matches"),
    [
        ("", True),
        ("state=DEAD kind=weld* label.line=3 target=dock-7 robot=r1 reason=poison older=2h priority>=7", True),
        ("state=dead", True),
        ("state=COMPLETED", False),
        ("state!=COMPLETED", True),
        ("state=D*", True),
        ("kind=weld", False),
        ("kind=*fine", True),
        ("kind=*eld-*i*e", True),
        ("kind=weld-fine*fine", False),
        ("kind=*", True),
        ("kind!=weld*", False),
        ("limit_key=*", False),
        ("limit_key!=x", True),
        ("label.line=4", False),
        ("label.none=*", False),
        ('label.note="two words"', True),
        ("priority=7 priority<8 priority<=7 priority>6 priority!=8", True),
        ("priority>7", False),
        ("failures=0", True),
        ("older=121m", False),
        ("older=1h", True),
        ("older>=7200s older<=2h", True),
        ("older>2h", False),
        ("older<3h older<1d older>7199999ms", True),
        ("done_twice=true paused=false held=false", True),
        ("done_twice=false", False),
        ("schedule=night*", True),
        ("pool=hall-a id=t1", True),
    ],
)
def test_what_a_filter_matches(where: str, matches: bool) -> None:
    """Each operator on texts, patterns, numbers, ages and flags; parts are joined by and."""
    assert filter_of(where).matches(TASK, NOW) is matches


@pytest.mark.parametrize(
    ("where", "part", "says"),
    [
        ("state=DED", "state=DED", "state is one of WAITING, ASSIGNED"),
        ("kind=weld stat=DEAD", "stat=DEAD", "did you mean state?"),
        ("label.=3", "label.=3", "there is no field label."),
        ("priority>=x", "priority>=x", "compared with a whole number"),
        ("priority=9999999999999999", "priority=9999999999999999", "whole number"),
        ("older=2", "older=2", "a time like 30s, 5m, 2h or 7d"),
        ("older!=2h", "older!=2h", "older knows"),
        ("kind>weld", "kind>weld", "knows = and != only"),
        ("done_twice=yes", "done_twice=yes", "write done_twice=true"),
        ("DEAD", "DEAD", "write FIELD=VALUE"),
        ('label.a="unclosed', 'label.a="unclosed', "write FIELD=VALUE"),
        ("=x", "=x", "write FIELD=VALUE"),
    ],
)
def test_what_is_refused(where: str, part: str, says: str) -> None:
    """bad_filter names the part and says what to write instead."""
    refusal = parse_filter(where, "task")
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "bad_filter"
    assert refusal.extra == {"part": part}
    assert says in refusal.text


def test_filters_are_bounded() -> None:
    """Too long, or too many parts."""
    for where in ("kind=" + "a" * FILTER_CHARS_MAX, "kind=a " * (PARTS_MAX + 1)):
        refusal = parse_filter(where, "task")
        assert isinstance(refusal, Refusal)
        assert refusal.reason == "bad_filter"


def test_a_pattern_of_many_stars_is_quick() -> None:
    """No pattern makes matching explode."""
    filtered = filter_of("kind=" + "*a" * 200 + "b")
    assert not filtered.matches(TASK | {"kind": "a" * 2_000}, NOW)


@pytest.mark.parametrize("subject", list(FIELDS))
def test_every_field_can_be_asked(subject: Subject) -> None:
    """Each field of the table works on a card that has nothing but what every card has."""
    cards: dict[Subject, dict[str, Any]] = {
        "task": {"state": "WAITING", "submitted_at": NOW},
        "robot": {"state": "IDLE", "since_at": NOW},
        "event": {"occurred_at": NOW},
    }
    least = cards[subject]
    values = {"text": "=*", "number": ">=0", "age": ">=0s", "flag": "=false"}
    for name, known in FIELDS[subject].items():
        there = known.what != "text" or name == "type" or (name == "state" and subject != "event")
        assert filter_of(name + values[known.what], subject).matches(least, NOW) is there, name


def test_robots_and_events() -> None:
    """The same language for robots and for events as stored."""
    robot = {"pool": "p", "id": "r1", "state": "ERROR", "capabilities": ["gpu", "cpu=8"], "slots": 4}
    robot |= {"fault": {"reason": "reported"}, "since_at": NOW - HOUR}
    assert filter_of("state=ERROR robot=r* capability=gpu reason=reported older=1h slots>2", "robot").matches(
        robot, NOW
    )
    assert not filter_of("capability=tpu", "robot").matches(robot, NOW)
    event = {"type": "TaskCancelled.v1", "pool": "p", "task": "t1", "to": "CANCELLED", "occurred_at": NOW}
    assert filter_of("type=TaskCancelled id=t1 state=CANCELLED", "event").matches(event, NOW)
    assert filter_of("type=Task*", "event").matches(event, NOW)


def test_a_filter_is_written_as_it_is_read() -> None:
    """The text of a filter gives the same filter; the one value of an exact part is known."""
    filtered = filter_of('kind=weld*  label.note="two words" state=dead')
    assert str(filtered) == 'kind=weld* label.note="two words" state=DEAD'
    assert filter_of(str(filtered)) == filtered
    assert (filtered.only("state"), filtered.only("kind"), filtered.only("pool")) == ("DEAD", None, None)
    own = filtered.adding("actor", "a*")
    assert not own.matches(TASK | {"actor": "ab"}, NOW)
    assert own.matches(TASK | {"actor": "a*"}, NOW)
