"""Look: tasks, robots, pools, targets, events, and the live view of it all."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from fleetlog import listing
from fleetlog.asking import part
from fleetlog.choosing import in_pool
from fleetlog.listing import LIMIT, All, Columns, Limit, Sort, Watch, Where, limit_of
from fleetlog.output import Item, age
from fleetlog.problems import no_answer, wrong_usage
from fleetlog.telling import kind_of, subject, tell
from fleetlog.verb import LOOK, POOL_AND_GATEWAY, Call, Uses, verb
from fleetlog.when import clock, clock_of, instant, rfc3339, span_s

TASK_COLUMNS: Final = (
    "id",
    "kind",
    "state",
    "priority",
    "target",
    "robot",
    "attempt",
    "progress",
    "submitted_at",
    "since_at",
)
ROBOT_COLUMNS: Final = (
    "id",
    "state",
    "since_at",
    "slots",
    "used",
    "ready",
    "attempts",
    "capabilities",
    "counts.completed",
)
POOL_COLUMNS: Final = (
    "pool",
    "tasks.WAITING",
    "tasks.RUNNING",
    "tasks.DEAD",
    "tasks.COMPLETED",
    "robots.IDLE",
    "robots.BUSY",
    "robots.OFFLINE",
)
TARGET_COLUMNS: Final = ("name", "open", "waiting", "holder.task", "holder.robot", "last_served_at", "paused.reason")
_FIGURES: Final = (
    "waiting",
    "events.completed",
    "completed_per_minute",
    "events.failed",
    "events.expired",
    "error_share",
    "waited.p50_s",
    "waited.p95_s",
    "ran.p50_s",
    "ran.p95_s",
)
STATS_COLUMNS: Final = {
    "kinds": ("kind", *_FIGURES),
    "steps": ("at", *_FIGURES),
    "robots": ("robot", "slots", "use", "held_s", "events.completed", "events.failed", "events.lost", "error_share"),
}
EVENT_COLUMNS: Final = ("sequence", "at", "type", "subject", "what")

TaskId = Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")]


@verb(
    "tasks",
    LOOK,
    POOL_AND_GATEWAY,
    ("fleetlog tasks", "fleetlog tasks --where 'state=WAITING older=1m' --columns id,kind"),
)
def tasks(
    call: Call,
    where: Where = "",
    limit: Limit = LIMIT,
    everything: All = False,
    sort: Sort = None,
    columns: Columns = None,
    watch: Watch = False,
) -> None:
    """List tasks.

    Sorted by submission, newest first, or by priority, eligible, since, ended, attempt, failures, lost, waited, ran.
    """
    listing.show(
        call,
        "task",
        lambda: call.gateway.pages(
            "/v1/tasks", limit_of(limit, everything), where=in_pool(call, where), sort=sort or "-submitted"
        ),
        TASK_COLUMNS,
        columns,
        watch,
    )


OF_THE_RECORD = ("position", "sequence", "at_sequence", "base_at", "caused_by")
"""What of a task's card only `--json` shows: where it stands in the log."""


@verb("task", LOOK, POOL_AND_GATEWAY, ("fleetlog task order-17", "fleetlog task order-17 --json"))
def task(call: Call, task: TaskId) -> None:
    """Show one task as it stands."""
    found = call.gateway.get(f"/v1/pools/{part(call.pool)}/tasks/{part(task)}")
    call.out.card(found, skip=OF_THE_RECORD)


@verb("why", LOOK, POOL_AND_GATEWAY, ("fleetlog why order-18", "fleetlog why order-18 --json"))
def why(call: Call, task: TaskId) -> None:
    """Say why a task is where it is: what holds it, in the words of its owner."""
    found = call.gateway.get(f"/v1/pools/{part(call.pool)}/tasks/{part(task)}/why")
    call.out.say(found, str(found.get("text", "")))


@verb("history", LOOK, POOL_AND_GATEWAY, ("fleetlog history order-17", "fleetlog history order-17 --json"))
def history(call: Call, task: TaskId) -> None:
    """Show every event of a task, from its submission on."""
    path = f"/v1/pools/{part(call.pool)}/tasks/{part(task)}/history"
    if call.out.as_json:
        call.out.rows(call.gateway.pages(path, None), ())
        return
    events = list(call.gateway.pages(path, None))
    first = events[0]["occurred_at"] if events else 0
    rows = [event_row(event) | {"after_s": (event["occurred_at"] - first) / 1000} for event in events]
    call.out.rows(rows, ("sequence", "at", "after_s", "type", "what") if call.out.terminal else EVENT_COLUMNS)


def event_row(event: Item) -> dict[str, Any]:
    """An event as a row: number, time, type, what it is about, and what happened in words."""
    return {
        "sequence": event["sequence"],
        "at": clock(event["occurred_at"]),
        "type": kind_of(event),
        "subject": subject(event),
        "what": tell(event),
    }


@verb(
    "events",
    LOOK,
    POOL_AND_GATEWAY,
    ("fleetlog events --where 'task=order-17'", "fleetlog events --types TaskCompleted,TaskCancelled --from 1h --json"),
)
def events(
    call: Call,
    where: Where = "",
    types: Annotated[
        str | None, typer.Option("--types", metavar="TYPE,...", help="TaskAssigned,LeaseExpired ...")
    ] = None,
    since: Annotated[str | None, typer.Option("--from", metavar="WHEN", help="An instant, or a span back: 2h.")] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="WHEN", help="An instant, or a span back.")] = None,
    limit: Limit = LIMIT,
    everything: All = False,
    columns: Columns = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens, until Ctrl-C.")] = False,
) -> None:
    """List events as they stand in the log, oldest first.

    With --follow only those from now on, unless --from says since when.
    """
    asked = {"where": in_pool(call, where), "types": types}
    if not follow or since is not None:
        bounds = {
            "from": instant(since, "--from", back=True) if since else None,
            "to": instant(until, "--to", back=True) if until else None,
        }
        found = call.gateway.pages("/v1/events", None if follow else limit_of(limit, everything), **asked, **bounds)
        _show_events(call, found, columns)
    if follow:
        _show_events(call, _following(call, asked), columns)


def _show_events(call: Call, found: Iterable[Item], columns: str | None) -> None:
    if columns is not None:
        rows = ({**event_row(event), **event} for event in found)
        listing.show(call, "event", lambda: rows, EVENT_COLUMNS, columns, False)
    elif call.out.as_json:
        call.out.rows(found, EVENT_COLUMNS)
    elif call.out.terminal:
        for event in found:
            row = event_row(event)
            call.out.console().print(f"{row['at']}  {row['subject']:<32} {row['what']}", markup=False)
    else:
        call.out.rows((event_row(event) | {"at": rfc3339(event["occurred_at"])} for event in found), EVENT_COLUMNS)


def _following(call: Call, asked: dict[str, Any]) -> Iterator[Item]:
    """Events from now on; a connection that breaks is made anew where it broke off."""
    position: str | None = None
    while True:
        for told in call.gateway.stream(position, **asked):
            if told is None:
                call.out.stop_if_nobody_reads()
            else:
                position = told.position
                yield told.data
        if position is None:
            raise no_answer("the stream of events ended before it began: ask again, or see /readyz of the gateway.")


@verb("robots", LOOK, POOL_AND_GATEWAY, ("fleetlog robots", "fleetlog robots r1"))
def robots(
    call: Call,
    robot: Annotated[str | None, typer.Argument(metavar="ROBOT", help="Show this one whole.")] = None,
    where: Where = "",
    limit: Limit = LIMIT,
    everything: All = False,
    sort: Sort = None,
    columns: Columns = None,
    watch: Watch = False,
) -> None:
    """List robots with their state and what they hold, or show one."""
    if robot is not None:
        call.out.card(call.gateway.get(f"/v1/pools/{part(call.pool)}/robots/{part(robot)}"), skip=("position",))
        return
    listing.show(
        call,
        "robot",
        lambda: _robot_rows(
            call, call.gateway.pages("/v1/robots", limit_of(limit, everything), where=in_pool(call, where), sort=sort)
        ),
        ROBOT_COLUMNS,
        columns,
        watch,
    )


def _robot_rows(call: Call, found: Iterable[Item]) -> Iterator[Item]:
    for robot in found:
        held = robot.get("attempts")
        yield robot if call.out.as_json or not isinstance(held, dict) else {**robot, "attempts": list(held)}


@verb("pools", LOOK, Uses.GATEWAY, ("fleetlog pools", "fleetlog pools --json"))
def pools(
    call: Call,
    limit: Limit = LIMIT,
    everything: All = False,
    sort: Sort = None,
    columns: Columns = None,
    watch: Watch = False,
) -> None:
    """List pools with what waits and runs in them."""
    listing.show(
        call,
        "pool",
        lambda: listing.sorted_by(call.gateway.pages("/v1/pools", None), sort, limit_of(limit, everything)),
        POOL_COLUMNS,
        columns,
        watch,
    )


@verb("targets", LOOK, POOL_AND_GATEWAY, ("fleetlog targets", "fleetlog targets --sort -waiting --limit 10"))
def targets(
    call: Call,
    limit: Limit = LIMIT,
    everything: All = False,
    sort: Sort = None,
    columns: Columns = None,
    watch: Watch = False,
) -> None:
    """List targets that have open tasks, with what waits for each and which task holds it."""
    path = f"/v1/pools/{part(call.pool)}/targets"
    listing.show(
        call,
        "target",
        lambda: listing.sorted_by(call.gateway.pages(path, None), sort, limit_of(limit, everything)),
        TARGET_COLUMNS,
        columns,
        watch,
    )


class By(StrEnum):
    """What figures are shown of."""

    kinds = "kinds"
    robots = "robots"
    steps = "steps"


@verb(
    "stats",
    LOOK,
    POOL_AND_GATEWAY,
    ("fleetlog stats", "fleetlog stats --by steps --from 2h --step 10m --columns at,waiting,completed_per_minute"),
)
def stats(
    call: Call,
    by: Annotated[By, typer.Option("--by", help="A line for each kind, robot, or step of time.")] = By.kinds,
    since: Annotated[str, typer.Option("--from", metavar="WHEN", help="An instant, or a span ago: 30m, 2h.")] = "1h",
    to: Annotated[
        str | None, typer.Option("--to", metavar="WHEN", help="An instant or a span ago; default: now.")
    ] = None,
    step: Annotated[str, typer.Option("--step", metavar="SPAN", help="Whole minutes: 1m, 10m, 1h.")] = "5m",
    columns: Columns = None,
    watch: Watch = False,
) -> None:
    """Show figures of a pool: throughput, waiting and running times, failures, queue length, use of robots.

    Up to a week back, in whole minutes. With --json one object with all of them.
    """
    step_s = span_s(step)
    if step_s is None:
        raise wrong_usage(f"--step {step!r} is no span: write 1m, 10m or 1h.")

    def fetch() -> Iterator[Item]:
        found = call.gateway.get(
            f"/v1/pools/{part(call.pool)}/stats",
            **{"from": instant(since, "--from", back=True)},
            to=instant(to, "--to", back=True) if to else None,
            step_s=int(step_s),
        )
        if call.out.as_json and columns is None:
            yield found
            return
        call.out.note(_figures_now(found))
        yield from found[by.value]
        if by is By.kinds:
            yield {"kind": "(all)", **found["total"]}

    what = "figures of a robot" if by is By.robots else "figures"
    listing.show(call, what, fetch, STATS_COLUMNS[by.value], columns, watch)


def _figures_now(found: Item) -> str:
    """How the pool stands now, and what time the figures are of."""
    tasks, robots = found["now"]["tasks"], found["now"]["robots"]
    said = [f"{count} {state}" for state, count in tasks.items() if state in ("WAITING", "ASSIGNED", "RUNNING", "LOST")]
    oldest = found["now"].get("oldest_waiting_at")
    waits = f", the oldest for {age(oldest).removesuffix(' ago')}" if oldest else ""
    there = ", ".join(f"{count} {state}" for state, count in robots.items())
    times = f"{clock_of(found['from'])} to {clock_of(found['to'])}"
    return f"now: {', '.join(said) or 'no open task'}{waits}; robots: {there or 'none'}; figures of {times}"


@verb("watch", LOOK, POOL_AND_GATEWAY, ("fleetlog watch", "fleetlog watch --where 'kind=checksum' --timeout 5"))
def watch(
    call: Call,
    where: Annotated[str, typer.Option("--where", metavar="FILTER", help="Only these tasks and their events.")] = "",
) -> None:
    """Watch the fleet live: robots and what they run, the queue, what happens.

    On a terminal a view that renews itself, elsewhere a line for each event. Ctrl-C ends it, --timeout after a time.
    """
    from fleetlog.watching.main import watch_fleet

    watch_fleet(call, where)
