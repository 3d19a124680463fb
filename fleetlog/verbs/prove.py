"""Prove: what the log says by itself, without the gateway and its tables."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fleetlog.output import Item
from fleetlog.problems import Problem, wrong_usage
from fleetlog.verb import PROVE, Call, Uses, verb
from fleetlog.verbs.look import EVENT_COLUMNS, ROBOT_COLUMNS, TASK_COLUMNS, event_row
from fleetlog.when import rfc3339

if TYPE_CHECKING:
    from streams.port import Record

PROBLEMS_SHOWN: Final = 20

Export = Annotated[
    Path | None, typer.Option("--export", metavar="FILE", help="Read what `log export` wrote, not the log.")
]


def _records(call: Call, export: Path | None, pool: str | None) -> Iterator["Record"]:
    """Events of the log, or of an export: of one pool, or of all."""
    if export is not None:
        from fleetlog.archive import read_archive

        yield from (record for record in read_archive(export) if pool is None or record.key == pool)
        return
    from fleetlog.log_work import partitions_of
    from projections.audit import read_events

    log = call.reader()
    for record in read_events(log, partitions_of(log, pool)):
        if pool is None or record.key == pool:
            yield record


@verb(
    "audit verify",
    PROVE,
    Uses.LOG | Uses.ANY_POOL,
    ("fleetlog audit verify", "fleetlog audit verify --export events.jsonl --json"),
)
def audit_verify(call: Call, export: Export = None) -> None:
    """Prove that nothing was altered, left out or done twice: chain, sequences, ids, and the rules of the states.

    Reads everything once. Exit code 1 where something is wrong; what and where is said.
    """
    from fleetlog.checking import Invariants
    from projections.audit import verify

    report = verify(_records(call, export, call.pool_given), [Invariants()])
    if call.out.as_json:
        call.out.json(
            {"verified": report.verified, "events": report.events, "wrong": report.wrong,
             "pools": {pool: {"events": head.events, "sequence": head.sequence, "hash": head.hash.hex()}
                       for pool, head in report.heads.items()},
             "problems": [_problem(problem) for problem in report.problems]}
        )  # fmt: skip
    else:
        for problem in report.problems[:PROBLEMS_SHOWN]:
            place = f"{problem.pool or '?'} {problem.sequence or ''}".strip()
            call.out.text(
                f"{problem.rule}: {place} (partition {problem.partition}, offset {problem.offset}): {problem.text}"
            )
        if report.verified and not call.out.quiet:
            for pool, head in sorted(report.heads.items()):
                call.out.text(f"{pool}\t{head.events} events\tverified to {head.sequence}\t{head.hash.hex()}")
            if not report.heads:
                call.out.note("the log has no events yet: there is nothing to verify.")
    if not report.verified:
        raise Problem(f"the log does not verify: {report.wrong} things are wrong in {report.events} events.")


def _problem(problem: Any) -> dict[str, Any]:
    names = ("rule", "text", "pool", "sequence", "partition", "offset")
    return {name: getattr(problem, name) for name in names if getattr(problem, name) is not None}


@verb(
    "audit history",
    PROVE,
    Uses.LOG | Uses.POOL,
    ("fleetlog audit history order-17", "fleetlog audit history order-17 --export events.jsonl"),
)
def audit_history(
    call: Call, task: Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")], export: Export = None
) -> None:
    """Show every event of a task as the log has it, however long ago the task ended."""
    events = list(_about(_records(call, export, call.pool), task))
    if not events:
        raise Problem(f"the log has no event of task {task} in pool {call.pool}: check the id and --pool.")
    if call.out.as_json:
        call.out.rows(events, ())
        return
    call.out.rows((event_row(event) | {"at": rfc3339(event["occurred_at"])} for event in events), EVENT_COLUMNS)


def _about(records: Iterable["Record"], task: str) -> Iterator[Item]:
    from pydantic_core import from_json

    from projections.task_cards import TASK_RULES

    mark = task.encode()
    for record in records:
        # Decoding is what takes the time; an event that does not hold the name cannot be about the task.
        if mark in record.value:
            event = from_json(record.value)
            if event.get("task") == task and event["type"] in TASK_RULES:
                yield event


@verb(
    "audit at",
    PROVE,
    Uses.LOG | Uses.POOL,
    ("fleetlog audit at '#3'", "fleetlog audit at '#20' --where 'state=COMPLETED' --json"),
)
def audit_at(
    call: Call,
    when: Annotated[
        str, typer.Argument(metavar="WHEN", help="An instant, a span back like 2h, or a sequence of the pool: #17.")
    ],
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="Show this task.")] = None,
    where: Annotated[str | None, typer.Option("--where", metavar="FILTER", help="List the tasks that match.")] = None,
    robots: Annotated[bool, typer.Option("--robots", help="List the robots.")] = False,
    export: Export = None,
) -> None:
    """Show a pool, its tasks or its robots as they stood at an earlier moment, from the events alone."""
    from fleetlog.replay import tables_of, until

    if (task is not None) + (where is not None) + robots > 1:
        raise wrong_usage("show one thing: a TASK, --where, or --robots.")
    within = until(when)
    records = (record for record in _records(call, export, call.pool) if within(record))
    with tables_of(records) as tables:
        if task is not None:
            _show_one(call, tables.task(call.pool, task).value, f"task {task}", when)
        elif where is not None:
            _show_list(call, _pages(lambda cursor: _tasks_page(tables, call.pool, where, cursor)), TASK_COLUMNS)
        elif robots:
            _show_list(call, _pages(lambda cursor: _robots_page(tables, call.pool, cursor)), ROBOT_COLUMNS)
        else:
            overview = tables.pool(call.pool).value
            card = (
                None
                if overview is None
                else {**overview["card"], "tasks": overview["tasks"], "robots": overview["robots"]}
            )
            _show_one(call, card, f"pool {call.pool}", when)


def _show_one(call: Call, card: Any, what: str, when: str) -> None:
    from robot_gateway.wire import to_http

    if card is None:
        raise Problem(f"there was no {what} at {when}: check the name, --pool and the moment.")
    call.out.card(to_http(card))


def _show_list(call: Call, cards: Iterator[Any], columns: Sequence[str]) -> None:
    from robot_gateway.wire import to_http

    call.out.rows((to_http(card) for card in cards), columns)


def _pages(page: Any) -> Iterator[Any]:
    cursor = None
    while True:
        found = page(cursor)
        yield from found.items
        cursor = found.next
        if cursor is None:
            return


def _tasks_page(tables: Any, pool: str, where: str, cursor: str | None) -> Any:
    return _page_of(lambda filtered: tables.tasks(filtered, "submitted", 1000, cursor), f"pool={pool} {where}", "task")


def _robots_page(tables: Any, pool: str, cursor: str | None) -> Any:
    return _page_of(lambda filtered: tables.robots(filtered, 1000, cursor), f"pool={pool}", "robot")


def _page_of(ask: Any, where: str, subject: Any) -> Any:
    from commands.reasons import Refusal
    from projections.filters import parse_filter

    filtered = parse_filter(where, subject)
    found = filtered if isinstance(filtered, Refusal) else ask(filtered)
    if isinstance(found, Refusal):
        raise wrong_usage(f"{found.text} [{found.reason}].")
    return found
