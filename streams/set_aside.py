"""Inputs that cannot be decoded or decided: the event that names them, and the answer to who sent them."""

from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from commands.decide import Draft
from commands.events import RecordQuarantined
from commands.ids import content_digest
from streams.port import Record


def quarantined_event(record: Record, error: str, asked: Any) -> RecordQuarantined:
    """The event; `asked` is what was decoded, or None."""
    return RecordQuarantined(
        topic=record.topic.value,
        partition=record.partition,
        offset=record.offset,
        digest=content_digest(record.value.hex()),
        error=error[:1_000],
        input_id=getattr(asked, "id", None),
    )


def quarantined_answer(record: Record, error: str) -> Draft | None:
    """The answer to who sent a record that was set aside, where that can be read from it."""
    try:
        value = from_json(record.value)
        message = {
            "reason": "quarantined",
            "text": f"{error} ({record.topic.value}, partition {record.partition}, offset {record.offset})",
        }
        if "reply_to" in value:
            return Draft(str(value["reply_to"]), {"status": "refused", **message}, of=str(value["id"]))
        said = value["message"]
        refused = {"type": "refused", "of": said["id"], "retry": False, **message}
        return Draft(str(value["gateway"]), refused, robot=str(value["robot"]), epoch=said.get("epoch"))
    except (ValueError, KeyError, TypeError):
        return None


def first_line(fault: ValidationError) -> str:
    """What is wrong first, and where."""
    first = fault.errors(include_url=False, include_input=False)[0]
    return f"{'/'.join(map(str, first['loc']))}: {first['msg']}"
