"""docs/formats/inputs.md: what the other streams of the log hold, from the shapes that read and write them."""

from typing import Any, Final, get_type_hints

from commands import inputs as i
from commands.outcomes import Outcome
from docs.generators.markdown import code, doc, field_table, fields_of, page, table
from docs.generators.protocol import shapes
from streams.port import VALUE_BYTES_MAX

INTRODUCTION: Final = f"""
Beside [events](events.md), the log has three streams with the same partitions: `commands`, `reports` and `outcomes`.
Each record is one JSON object in UTF-8, at most {VALUE_BYTES_MAX:,} bytes, with the pool as key; `v` is the version.
Commands and reports are kept for 7 days, outcomes for 6 hours. Only gateways write the first two, only owners the
third: whoever wants to ask something uses [HTTP](http.md) or the [robot protocol](../reference/protocol.md).
"""
REPORT: Final = "`message` is the robot's message as it was sent: see the [robot protocol](../reference/protocol.md)."
ELSEWHERE: Final = ("bodies", "deadlines", "taskchanges")
"""Headings of events.md."""


def inputs_page() -> str:
    """docs/formats/inputs.md."""
    commands = shapes(i.Command)
    bodies = {shape.__name__: shape for shape in (_body(command) for command in commands)}
    parts = [
        INTRODUCTION,
        "## Commands",
        doc(i.CommandBase),
        field_table(fields_of(i.CommandBase), {}),
        table(("type", "body", ""), [_command(command) for command in commands]),
        "## Bodies of commands",
        *(_shape(shape) for shape in bodies.values()),
        "## Reports",
        _shape(i.Report, without=("message",)),
        REPORT,
        *(_shape(shape) for shape in (i.Heartbeats, i.Beat)),
        "## Outcomes",
        _shape(Outcome, without=("message",)),
    ]
    return _with_links(page("Commands, reports and outcomes as they are stored", *parts))


def _body(command: type[Any]) -> Any:
    return get_type_hints(command)["body"]


def _command(command: type[Any]) -> tuple[str, str, str]:
    body = _body(command).__name__
    return code(command.__dataclass_fields__["type"].default), f"[{body}](#{body.lower()})", doc(command)


def _shape(shape: type[Any], without: tuple[str, ...] = ()) -> str:
    fields = fields_of(shape, without, sent=True)
    return "\n\n".join((f"### {shape.__name__}", doc(shape), field_table(fields, {})))


def _with_links(text: str) -> str:
    for heading in ELSEWHERE:
        text = text.replace(f"(#{heading})", f"(events.md#{heading})")
    return text
