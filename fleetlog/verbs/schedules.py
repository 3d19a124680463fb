"""Set up: schedules, which submit a task again and again."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from fleetlog import listing
from fleetlog.asking import part
from fleetlog.choosing import Reason, body
from fleetlog.listing import All, Columns, Limit, Watch
from fleetlog.output import Item
from fleetlog.problems import wrong_usage
from fleetlog.submitting import deadlines_of, labels_of, payload_of, task_fields
from fleetlog.telling import schedule_words
from fleetlog.verb import POOL_AND_GATEWAY, SET_UP, Call, verb
from fleetlog.verbs.task_options import (
    Accept,
    FailuresMax,
    Label,
    LateOption,
    Lease,
    LimitKey,
    LostMax,
    LostWait,
    OnLostOption,
    PassOption,
    Payload,
    Prefer,
    Priority,
    Require,
    RunWithin,
    SlotCost,
    Target,
    Then,
    ThenOption,
)
from fleetlog.when import instant, span_s

LIST_COLUMNS: Final = ("id", "when", "task.kind", "overlap", "state", "next_at", "fired", "skipped")
NEXT_COLUMNS: Final = ("local", "instant", "due_at", "task")


class Overlap(StrEnum):
    """What an instant does while a firing is open."""

    skip = "skip"
    queue_one = "queue_one"
    allow = "allow"


Name = Annotated[str, typer.Argument(metavar="SCHEDULE", help="Its tasks are SCHEDULE@INSTANT.")]


def _path(call: Call, name: str) -> str:
    return f"/v1/pools/{part(call.pool)}/schedules/{part(name)}"


@verb(
    "schedule set",
    SET_UP,
    POOL_AND_GATEWAY,
    (
        "fleetlog schedule set ping-server-1 ping --every 60s --target server-1",
        "fleetlog schedule set nightly report --cron '30 2 * * *' --zone Europe/Berlin",
    ),
)
def schedule_set(
    call: Call,
    name: Name,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What is to be done.")],
    every: Annotated[str | None, typer.Option("--every", metavar="SPAN", help="An interval: 30s, 5m, 1d.")] = None,
    cron: Annotated[
        str | None, typer.Option("--cron", metavar="PATTERN", help="Minute, hour, day, month, weekday: '30 2 * * *'.")
    ] = None,
    zone: Annotated[
        str | None, typer.Option("--zone", metavar="ZONE", help="The time zone of --cron: Europe/Berlin; default: UTC.")
    ] = None,
    overlap: Annotated[
        Overlap, typer.Option("--overlap", help="While a firing is open: skip, let the newest wait, or allow it.")
    ] = Overlap.skip,
    catch_up: Annotated[
        int, typer.Option("--catch-up", min=0, max=100, help="So many missed instants are fired late, the latest ones.")
    ] = 1,
    jitter: Annotated[
        str | None, typer.Option("--jitter", metavar="SPAN", help="Each firing is late by up to that.")
    ] = None,
    payload: Payload = None,
    priority: Priority = None,
    target: Target = None,
    limit_key: LimitKey = None,
    require: Require = None,
    prefer: Prefer = None,
    slot_cost: SlotCost = None,
    run_within: RunWithin = None,
    then: ThenOption = Then.alarm,
    lease: Lease = None,
    accept: Accept = None,
    failures_max: FailuresMax = None,
    lost_max: LostMax = None,
    on_lost: OnLostOption = None,
    lost_wait: LostWait = None,
    passing: PassOption = None,
    late: LateOption = None,
    label: Label = None,
) -> None:
    """Set a schedule, or replace it: a task is submitted at each of its instants from now on.

    Intervals are whole multiples since 1970 (every 15m: at :00, :15, :30, :45), so setting the same again delays
    nothing. A local time that the clock jumps over fires when it would have come; one that comes twice fires once.
    """
    if (every is None) == (cron is None):
        raise wrong_usage("when does it fire? Give --every 60s or --cron '30 2 * * *'.")
    task = task_fields(
        priority=priority,
        target=target,
        limit_key=limit_key,
        requirement=require,
        prefer=prefer,
        slot_cost=slot_cost,
        deadlines=deadlines_of(None, None, run_within, then.value),
        lease_s=lease,
        accept_s=accept,
        failures_max=failures_max,
        backoff_first=None,
        backoff_max=None,
        lost_max=lost_max,
        on_lost=on_lost.value if on_lost else None,
        lost_wait=lost_wait,
        labels=labels_of(label),
        late=late.value if late else None,
        **({"pass": passing.value} if passing else {}),
    )
    task |= {"kind": kind} | body(payload=payload_of(payload))
    when = body(
        every_s=None if every is None else _span(every, "--every"),
        cron=cron,
        zone=zone,
        jitter_s=None if jitter is None else _span(jitter, "--jitter"),
    )
    asked = when | {"overlap": overlap.value, "catch_up": catch_up, "task": task}
    answer = call.gateway.put(_path(call, name), asked)
    call.gateway.settle(answer)
    done = "set" if answer.get("changed", True) else "is so already"
    call.out.say(answer, f"schedule {name} {done}: {schedule_words(when)}")


def _span(text: str, option: str) -> float:
    found = span_s(text)
    if found is None:
        raise wrong_usage(f"{option} {text!r} is no span of time: write 30s, 5m, 2h or 1d.")
    return found


@verb(
    "schedule list",
    SET_UP,
    POOL_AND_GATEWAY,
    ("fleetlog schedule list", "fleetlog schedule list --columns id,when,last_skipped.reason"),
)
def schedule_list(
    call: Call, limit: Limit = listing.LIMIT, everything: All = False, columns: Columns = None, watch: Watch = False
) -> None:
    """List the schedules of a pool: when each fires next, how often it fired, how many instants were skipped."""
    path = f"/v1/pools/{part(call.pool)}/schedules"

    def fetch() -> Iterator[Item]:
        pages = call.gateway.pages(path, listing.limit_of(limit, everything))
        return iter(pages) if call.out.as_json and columns is None else map(_row, pages)

    listing.show(call, "schedule", fetch, LIST_COLUMNS, columns, watch)


def _row(schedule: Item) -> dict[str, Any]:
    """A schedule as a row: when it fires, in words; whether it is paused; its next instant."""
    following = schedule.get("next") or {}
    state = "paused" if "paused" in schedule else "active"
    return {**schedule, "when": schedule_words(schedule), "state": state, "next_at": following.get("instant")}


@verb(
    "schedule next",
    SET_UP,
    POOL_AND_GATEWAY,
    ("fleetlog schedule next nightly", "fleetlog schedule next nightly --count 3 --from 2026-10-24T00:00:00Z"),
)
def schedule_next(
    call: Call,
    name: Name,
    count: Annotated[int, typer.Option("--count", min=1, max=100, help="So many.")] = 10,
    since: Annotated[
        str | None, typer.Option("--from", metavar="WHEN", help="Later than an instant or a span: 30d; default: now.")
    ] = None,
) -> None:
    """Show when a schedule fires next: by the clocks of its zone, in UTC, and when it is due with its jitter."""
    after = None if since is None else instant(since, "--from")
    found = call.gateway.get(f"{_path(call, name)}/next", count=count, since=after)
    call.out.rows(found["items"], NEXT_COLUMNS)
    if found["paused"]:
        call.out.note(f"{name} is paused: none of these fires before `fleetlog schedule resume {name}`.")


@verb(
    "schedule pause",
    SET_UP,
    POOL_AND_GATEWAY,
    ("fleetlog schedule pause nightly", "fleetlog schedule pause nightly --reason 'the plant rests'"),
)
def schedule_pause(call: Call, name: Name, reason: Reason = None) -> None:
    """Let a schedule fire nothing until it is resumed. What it has submitted goes on."""
    _ask(call, name, "pause", reason, "paused")


@verb(
    "schedule resume",
    SET_UP,
    POOL_AND_GATEWAY,
    ("fleetlog schedule resume nightly", "fleetlog schedule resume nightly --reason 'the plant is back'"),
)
def schedule_resume(call: Call, name: Name, reason: Reason = None) -> None:
    """Let a schedule fire again, from its next instant on; those that passed are counted as skipped."""
    _ask(call, name, "resume", reason, "resumed")


@verb(
    "schedule rm",
    SET_UP,
    POOL_AND_GATEWAY,
    ("fleetlog schedule rm nightly", "fleetlog schedule rm nightly --reason 'moved to hall-b'"),
)
def schedule_rm(call: Call, name: Name, reason: Reason = None) -> None:
    """Remove a schedule. The tasks that it has submitted go on."""
    answer = call.gateway.delete(_path(call, name), body(reason=reason))
    call.gateway.settle(answer)
    call.out.say(answer, f"schedule {name} removed")


def _ask(call: Call, name: str, word: str, reason: str | None, done: str) -> None:
    answer = call.gateway.post(f"{_path(call, name)}/{word}", body(reason=reason))
    call.gateway.settle(answer)
    call.out.say(answer, f"schedule {name} {done if answer.get('changed', True) else f'was {done} already'}")
