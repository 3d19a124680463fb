"""From what a batch produced to the records that are written: events as encoded, outcomes with their bodies."""

from typing import Any

from pydantic_core import from_json, to_json

from commands.decide import BodyRef, Draft
from commands.events import CheckpointSaved, TaskSubmitted
from commands.pool import Written, WrittenEvent, WrittenOutcome
from streams.body_store import BodyStore
from streams.port import Output, Topic


def event_output(written: WrittenEvent) -> Output:
    """The record of an event: key = pool, headers `type` and `hash`."""
    headers = (("type", written.event.type.encode()), ("hash", written.hash))
    return Output(Topic.EVENTS, written.event.pool, written.value, headers)


def keep_bodies(bodies: BodyStore, written: Written) -> None:
    """Events that hold a payload or checkpoint are kept at hand for the messages that carry it."""
    for row in written.events:
        if isinstance(row.event, TaskSubmitted | CheckpointSaved):
            bodies.put(row.event.pool, row.event.sequence, row.value)


def forget_bodies(bodies: BodyStore, written: Written) -> None:
    """The same events are not known to be in the log: whoever owned the partition since may have numbered others so."""
    for row in written.events:
        if isinstance(row.event, TaskSubmitted | CheckpointSaved):
            bodies.drop(row.event.pool, row.event.sequence)


def outcome_output(outcome: WrittenOutcome, bodies: BodyStore) -> Output:
    """The record of an outcome: header `to` names the gateway."""
    draft = outcome.draft
    value: dict[str, Any] = {
        "v": 1,
        "pool": outcome.pool,
        "position": outcome.position,
        "message": _message(outcome, bodies),
    }
    for name in ("of", "robot", "epoch"):
        if (given := getattr(draft, name)) is not None:
            value[name] = given
    return Output(Topic.OUTCOMES, outcome.pool, to_json(value), (("to", draft.to.encode()),))


def _message(outcome: WrittenOutcome, bodies: BodyStore) -> dict[str, Any]:
    draft: Draft = outcome.draft
    return draft.message if draft.body is None else _with_bodies(draft.message, draft.body, outcome.pool, bodies)


def _with_bodies(message: dict[str, Any], body: BodyRef, pool: str, bodies: BodyStore) -> dict[str, Any]:
    """An `assign` with payload, labels and idempotency key of its submission, and its last checkpoint."""
    submitted = from_json(bodies.get(pool, *body.submitted))
    message["idempotency_key"] = submitted["id"]
    message["payload"] = submitted.get("payload", {}).get("json")
    if submitted["labels"]:
        message["labels"] = submitted["labels"]
    if "traceparent" in submitted:
        message["traceparent"] = submitted["traceparent"]
    if body.checkpoint is not None:
        saved = from_json(bodies.get(pool, *body.checkpoint))
        message["checkpoint"] = {"number": saved["number"], "value": saved["checkpoint"].get("json")}
    return message
