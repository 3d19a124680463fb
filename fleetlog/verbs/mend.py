"""Mend: dead letters, leases, pauses, robots, frozen pools."""

from typing import Annotated, Any, Final

import typer

from fleetlog import choosing, listing
from fleetlog.asking import part
from fleetlog.bulk import Bulk, DryRun, Stop, Token, Where, Yes, act
from fleetlog.choosing import NeededReason, Reason, Tasks, body, in_pool
from fleetlog.listing import LIMIT, All, Columns, Limit, Sort, Watch, limit_of
from fleetlog.output import Item
from fleetlog.problems import Problem, wrong_usage
from fleetlog.submitting import deadlines_of, payload_of
from fleetlog.verb import MEND, POOL_AND_GATEWAY, Call, verb
from fleetlog.verbs.task_options import (
    EndBy,
    Label,
    NotBefore,
    Prefer,
    Priority,
    Require,
    RunWithin,
    SlotCost,
    StartBy,
    Then,
    ThenOption,
)
from fleetlog.verbs.work import changes
from fleetlog.when import instant

DEAD_COLUMNS: Final = ("id", "kind", "dead_reason", "failures", "lost", "robot", "since_at", "error.message")

Robots = Annotated[list[str], typer.Argument(metavar="ROBOT", help="Ids of robots; - reads them from standard input.")]
Until = Annotated[str | None, typer.Option("--until", metavar="WHEN", help="An instant, or a span: 2h.")]
OfTarget = Annotated[str | None, typer.Option("--target", metavar="NAME", help="A target.")]
OfKind = Annotated[str | None, typer.Option("--kind", metavar="NAME", help="A kind.")]


@verb(
    "dead-letters",
    MEND,
    POOL_AND_GATEWAY,
    ("fleetlog dead-letters", "fleetlog dead-letters --where reason=poison --all"),
)
def dead_letters(
    call: Call,
    where: listing.Where = "",
    limit: Limit = LIMIT,
    everything: All = False,
    sort: Sort = None,
    columns: Columns = None,
    watch: Watch = False,
) -> None:
    """List tasks that will not run again until an operator decides: redrive, discard or resolve."""
    listing.show(
        call,
        "task",
        lambda: call.gateway.pages(
            "/v1/dead-letters", limit_of(limit, everything), where=in_pool(call, where), sort=sort
        ),
        DEAD_COLUMNS,
        columns,
        watch,
    )


def _state(answer: Item) -> str:
    return f"is {answer['state']}" if answer.get("changed", True) else f"was {answer['state']} already"


@verb(
    "redrive",
    MEND,
    POOL_AND_GATEWAY,
    ("fleetlog redrive order-19 --reason 'link is back'", "fleetlog redrive --where reason=failed --yes"),
)
def redrive(
    call: Call,
    tasks: Tasks = None,
    where: Where = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    token: Token = None,
    stop: Stop = False,
    reason: Reason = None,
    priority: Priority = None,
    require: Require = None,
    prefer: Prefer = None,
    slot_cost: SlotCost = None,
    not_before: NotBefore = None,
    start_by: StartBy = None,
    end_by: EndBy = None,
    run_within: RunWithin = None,
    then: ThenOption = Then.alarm,
    label: Label = None,
) -> None:
    """Put dead letters back into the queue, their counters at 0, changed where options say so."""
    deadlines = deadlines_of(start_by, end_by, run_within, then.value)
    changed = changes(priority, require, prefer, slot_cost, not_before, deadlines, label)
    said = body(reason=reason or "redriven by an operator", changed=changed or None)
    act(call, "redrive", tasks, Bulk(where, yes, dry_run, token, stop), said, _state)


@verb(
    "discard",
    MEND,
    POOL_AND_GATEWAY,
    (
        "fleetlog discard order-20 --reason 'no longer needed'",
        "fleetlog discard --where kind=trial* --reason trial --yes",
    ),
)
def discard(
    call: Call,
    reason: NeededReason,
    tasks: Tasks = None,
    where: Where = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    token: Token = None,
    stop: Stop = False,
) -> None:
    """Give dead letters up for good."""
    act(call, "discard", tasks, Bulk(where, yes, dry_run, token, stop), body(reason=reason), _state)


@verb(
    "resolve",
    MEND,
    POOL_AND_GATEWAY,
    (
        "fleetlog resolve order-21 --reason 'done by hand'",
        "fleetlog resolve order-22 --reason 'done by hand' --result '{\"ok\": true}'",
    ),
)
def resolve(
    call: Call,
    reason: NeededReason,
    tasks: Tasks = None,
    where: Where = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    token: Token = None,
    stop: Stop = False,
    result: Annotated[
        str | None, typer.Option("--result", metavar="JSON|TEXT|@FILE|-", help="What the task came to.")
    ] = None,
) -> None:
    """Say that LOST tasks or dead letters are done."""
    said = body(reason=reason, result=payload_of(result))
    act(call, "resolve", tasks, Bulk(where, yes, dry_run, token, stop), said, _state)


@verb(
    "release",
    MEND,
    POOL_AND_GATEWAY,
    (
        "fleetlog release order-23 --reason 'robot is stuck'",
        "fleetlog release --where robot=r9 --reason 'r9 burnt' --yes",
    ),
)
def release(
    call: Call,
    reason: NeededReason,
    tasks: Tasks = None,
    where: Where = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    token: Token = None,
    stop: Stop = False,
    force: Annotated[
        bool, typer.Option("--force", help="Free slot and target at once, although the robot may still work.")
    ] = False,
) -> None:
    """End the leases of tasks: they go back into the queue.

    Slot and target stay held until the robot has stopped or must have, unless forced.
    """
    said = body(reason=reason, force=force or None)
    act(call, "release", tasks, Bulk(where, yes, dry_run, token, stop), said, _state)


# ---- pause, resume ----


@verb("pause", MEND, POOL_AND_GATEWAY, ("fleetlog pause --kind report --until 2h", "fleetlog pause order-18"))
def pause(
    call: Call,
    tasks: Tasks = None,
    where: Where = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    token: Token = None,
    stop: Stop = False,
    target: OfTarget = None,
    kind: OfKind = None,
    until: Until = None,
    reason: Reason = None,
) -> None:
    """Assign nothing more of a pool, target, kind or task. What runs goes on."""
    said = body(reason=reason, until=instant(until, "--until") if until else None)
    _pause_or_resume(call, "pause", said, tasks, Bulk(where, yes, dry_run, token, stop), target, kind)


@verb("resume", MEND, POOL_AND_GATEWAY, ("fleetlog resume --kind report", "fleetlog resume order-18"))
def resume(
    call: Call,
    tasks: Tasks = None,
    where: Where = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    token: Token = None,
    stop: Stop = False,
    target: OfTarget = None,
    kind: OfKind = None,
    reason: Reason = None,
) -> None:
    """Assign a paused pool, target, kind or task again."""
    _pause_or_resume(call, "resume", body(reason=reason), tasks, Bulk(where, yes, dry_run, token, stop), target, kind)


def _pause_or_resume(
    call: Call,
    verb: str,
    said: dict[str, Any],
    tasks: list[str] | None,
    bulk: Bulk,
    target: str | None,
    kind: str | None,
) -> None:
    of_tasks = bool(tasks) or bulk.is_asked
    if of_tasks + (target is not None) + (kind is not None) > 1:
        raise wrong_usage("name one: tasks, --target or --kind; without any of them the whole pool is meant.")
    if of_tasks:
        act(call, verb, tasks, bulk, said, lambda _: f"{verb}d")
        return
    path, what = f"/v1/pools/{part(call.pool)}", f"pool {call.pool}"
    if target is not None:
        path, what = f"{path}/targets/{part(target)}", f"target {target}"
    elif kind is not None:
        path, what = f"{path}/kinds/{part(kind)}", f"kind {kind}"
    answer = call.gateway.post(f"{path}/{verb}", said)
    call.gateway.settle(answer)
    already = "" if answer.get("changed", True) else " already"
    call.out.say(answer, f"{what} {verb}d{already}")


# ---- robots ----


def _do_to_robots(call: Call, robots: list[str], verb: str, done: str, said: dict[str, Any]) -> None:
    refused = 0
    ids = list(choosing.from_arguments(robots))
    for robot in ids:
        try:
            answer = call.gateway.post(f"/v1/pools/{part(call.pool)}/robots/{part(robot)}/{verb}", said)
        except Problem as problem:
            if len(ids) == 1:
                raise
            refused += 1
            call.out.note(f"{robot}: {problem}")
        else:
            call.gateway.settle(answer)
            already = "" if answer.get("changed", True) else " already"
            call.out.say(answer, f"{robot} {done}{already}")
    if refused:
        raise Problem(f"{refused} of {len(ids)} robots were refused; the reasons stand above.")


@verb("drain", MEND, POOL_AND_GATEWAY, ("fleetlog drain r1 --reason maintenance", "fleetlog drain r1 r2"))
def drain(call: Call, robots: Robots, reason: Reason = None) -> None:
    """Give robots nothing new; what they hold goes on."""
    _do_to_robots(call, robots, "drain", "drains", body(reason=reason))


@verb("undrain", MEND, POOL_AND_GATEWAY, ("fleetlog undrain r1", "fleetlog undrain r1 r2"))
def undrain(call: Call, robots: Robots, reason: Reason = None) -> None:
    """Give robots work again."""
    _do_to_robots(call, robots, "undrain", "gets work again", body(reason=reason))


@verb("clear", MEND, POOL_AND_GATEWAY, ("fleetlog clear r3", "fleetlog clear r4 --reason 'gripper changed'"))
def clear(call: Call, robots: Robots, reason: Reason = None) -> None:
    """Take robots out of ERROR."""
    _do_to_robots(call, robots, "clear", "is out of ERROR", body(reason=reason))


@verb("retire", MEND, POOL_AND_GATEWAY, ("fleetlog retire r7 --reason sold", "fleetlog retire r8 r9 --reason sold"))
def retire(call: Call, robots: Robots, reason: NeededReason) -> None:
    """Forget robots that hold nothing; one that says hello again is registered anew."""
    _do_to_robots(call, robots, "retire", "is retired", body(reason=reason))


@verb(
    "unfreeze",
    MEND,
    POOL_AND_GATEWAY,
    ("fleetlog unfreeze --reason 'updated to 0.2'", "fleetlog unfreeze --pool hall-a --reason 'task t1 changed'"),
)
def unfreeze(call: Call, reason: NeededReason) -> None:
    """Let a pool go on that a fault of dispatch or of time has frozen."""
    answer = call.gateway.post(f"/v1/pools/{part(call.pool)}/unfreeze", {"reason": reason})
    call.out.say(answer, f"pool {call.pool} goes on")
