"""What HTTP takes: strict models, in HTTP units, with the nearest known name for a mistake."""

import pytest

from commands.inputs import Submission
from commands.reasons import Refusal
from robot_gateway.models import PatchIn, SubmitIn, TaskIn, TasksIn, read_model, submission_of


def submitted(raw: bytes) -> Submission:
    task = read_model(TaskIn, raw)
    assert isinstance(task, TaskIn), task
    submission = submission_of(task, task.id or "made", 1000)
    assert isinstance(submission, Submission), submission
    return submission


def test_units_become_those_of_the_log() -> None:
    """Seconds become whole milliseconds, instants milliseconds since 1970; names that are reserved words work."""
    submission = submitted(
        b"""{"id": "t1", "kind": "weld", "payload": {"x": 1}, "requirement": ["gpu", "mem>=16"], "prefer": ["near"],
             "slot_cost": 2, "target": "dock-7", "priority": 9, "not_before": "1970-01-01T00:00:01.5+00:00",
             "deadlines": {"start": {"at": "1970-01-01T01:00:02+01:00", "then": "dead"}, "run": {"s": 1.5}},
             "lease_s": 20.25, "accept_s": 0.5,
             "retry": {"failures_max": 5, "first_s": 0.001, "factor": 1.5, "max_s": 9},
             "lost_max": 7, "on_lost": {"policy": "wait", "wait_s": 3}, "pass": "all", "late": "record",
             "limit_key": "k", "labels": {"line": "3"}}"""
    )

    assert (submission.task, submission.kind, submission.payload) == ("t1", "weld", {"json": {"x": 1}})
    assert (submission.not_before, submission.lease_ms, submission.accept_ms) == (1500, 20250, 500)
    assert submission.deadlines is not None
    assert submission.deadlines.start is not None
    assert (submission.deadlines.start.at, submission.deadlines.start.then) == (2000, "dead")
    assert submission.deadlines.run is not None
    assert (submission.deadlines.run.ms, submission.deadlines.run.then) == (1500, "alarm")
    assert submission.retry is not None
    assert (submission.retry.first_ms, submission.retry.max_ms) == (1, 9000)
    assert submission.on_lost is not None
    assert submission.on_lost.wait_ms == 3000
    assert (submission.passing, submission.late, submission.limit_key) == ("all", "record", "k")


def test_what_is_left_out_is_left_to_the_pool() -> None:
    """A kind is enough."""
    assert submitted(b'{"kind": "weld"}') == Submission(task="made", kind="weld")
    assert submitted(b'{"kind": "weld", "payload": null}').payload is None


@pytest.mark.parametrize(
    ("raw", "reason", "field", "said"),
    [
        (b'{"kind": "x", "lease_sec": 3}', "unknown_field", "/lease_sec", "did you mean lease_s?"),
        (b'{"kind": "x", "passing": "all", "pas": 1}', "unknown_field", "/pas", "did you mean pass?"),
        (b'{"kind": "x", "retry": {"facto": 3}}', "unknown_field", "/retry/facto", "did you mean factor?"),
        (
            b'{"kind": "x", "deadlines": {"start": {"att": 3}}}',
            "invalid_field",
            "/deadlines/start/at",
            "at is needed",
        ),
        (b'{"kind": "x", "failures_max": 3}', "unknown_field", "/failures_max", "did you mean retry.failures_max?"),
        (b'{"kind": "x", "wait_s": 3}', "unknown_field", "/wait_s", "did you mean on_lost.wait_s?"),
        (b'{"kind": "x", "zzzzzz": 3}', "unknown_field", "/zzzzzz", "there is no field"),
        (b"{}", "invalid_field", "/kind", "kind is needed"),
        (b"[]", "invalid_field", None, ""),
        (b'{"kind": 5}', "invalid_field", "/kind", "a text in quotes"),
        (b'{"kind": "x", "priority": "5"}', "invalid_field", "/priority", "a whole number"),
        (b'{"kind": "x", "priority": true}', "invalid_field", "/priority", "a whole number"),
        (b'{"kind": "x", "priority": 10}', "invalid_field", "/priority", "9"),
        (b'{"kind": "x", "priority": -1}', "invalid_field", "/priority", "0"),
        (b'{"kind": "x", "lease_s": -1}', "invalid_field", "/lease_s", "more than 0"),
        (b'{"kind": "x", "lease_s": NaN}', "malformed_json", "/lease_s", "NaN"),
        (b'{"kind": "x", "retry": {"first_s": -0.5}}', "invalid_field", "/retry/first_s", "0"),
        (b'{"kind": "x", "not_before": 1700000000}', "invalid_field", "/not_before", "string"),
        (b'{"kind": "x", "not_before": "2026-11-30T09:15:00"}', "invalid_field", "/not_before", "zone"),
        (b'{"kind": "x", "not_before": "tomorrow"}', "invalid_field", "/not_before", ""),
        (b'{"kind": "x", "not_before": "1960-01-01T00:00:00Z"}', "invalid_field", "/not_before", "1970"),
        (b'{"kind": "' + b"k" * 65 + b'"}', "invalid_field", "/kind", "64"),
        (b'{"kind": "x", "id": "' + b"i" * 10_000 + b'"}', "invalid_field", "/id", "128"),
        (b'{"kind": "x", "id": "_x"}', "invalid_field", "/id", ""),
        (b'{"kind": "x", "id": "a@b"}', "invalid_field", "/id", ""),
        (b'{"kind": "x", "id": "a\\u0000"}', "invalid_field", "/id", "NUL"),
        (b'{"kind": "x", "id": "a\\n"}', "invalid_field", "/id", ""),
        (b'{"kind": "x", "on_lost": {"policy": "panic"}}', "invalid_field", "/on_lost/policy", "requeue"),
    ],
)
def test_a_mistake_is_named(raw: bytes, reason: str, field: str | None, said: str) -> None:
    """Reason word, JSON pointer, and a sentence."""
    refusal = read_model(TaskIn, raw)

    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.field) == (reason, field)
    assert said in refusal.text


def test_mistakes_in_lists_are_named_by_index() -> None:
    """So that one of a thousand tasks can be found."""
    refusal = read_model(TasksIn, b'{"tasks": [{"kind": "a"}, {"kind": "b", "lables": {}}]}')

    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.field) == ("unknown_field", "/tasks/1/lables")
    assert "did you mean labels?" in refusal.text


def test_a_submission_holds_at_most_a_thousand_tasks() -> None:
    """None is refused as well as one too many."""
    one = b'{"kind": "a"}'
    for count, fits in ((0, False), (1, True), (1000, True), (1001, False)):
        found = read_model(TasksIn, b'{"tasks": [' + b",".join([one] * count) + b"]}")
        assert isinstance(found, TasksIn) is fits


def test_a_payload_of_one_byte_too_many() -> None:
    """Measured as it is stored."""
    task = TaskIn(kind="x", payload="a" * 998)
    assert isinstance(submission_of(task, "t", 1000), Submission)

    refusal = submission_of(TaskIn(kind="x", payload="a" * 999), "t", 1000)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.field) == ("too_large", "/payload")


@pytest.mark.parametrize("condition", ["gpu mem", "mem>=lots", "", ">=3"])
def test_a_requirement_is_a_list_of_conditions(condition: str) -> None:
    """What can never be met because it cannot be read is refused at once."""
    task = TaskIn.model_construct(kind="x", requirement=[condition])
    refusal = submission_of(task, "t", 1000)

    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.field) == ("invalid_field", "/requirement")


def test_changes_are_only_those_given() -> None:
    """What is left out stays as it is."""
    patch = read_model(PatchIn, b'{"priority": 3, "labels": {}, "reason": "urgent"}')

    assert isinstance(patch, PatchIn)
    changed = patch.in_log()
    assert (changed.priority, changed.labels, changed.requirement, changed.deadlines) == (3, {}, None, None)


def test_a_message_of_the_submit_stream() -> None:
    """Type, id and pool are needed."""
    found = read_model(SubmitIn, b'{"type": "submit", "id": "i", "pool": "p", "tasks": [{"kind": "a"}]}')
    assert isinstance(found, SubmitIn)

    other = read_model(SubmitIn, b'{"type": "cancel", "id": "i", "pool": "p", "tasks": [{"kind": "a"}]}')
    assert isinstance(other, Refusal)
    assert other.field == "/type"
