"""Work: submit tasks, wait for them, take their results, cancel or change them."""

import json
import time
import uuid
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from fleetlog import choosing
from fleetlog.asking import TIMEOUT_S, WAIT_S, part
from fleetlog.bulk import Bulk, DryRun, Stop, Token, Where, Yes, act
from fleetlog.choosing import Reason, Tasks, body
from fleetlog.output import Item, duration
from fleetlog.problems import Problem, no_answer, wrong_usage
from fleetlog.submitting import deadlines_of, labels_of, payload_of, task_fields
from fleetlog.verb import POOL_AND_GATEWAY, WORK, Call, verb
from fleetlog.verbs.task_options import (
    Accept,
    EndBy,
    FailuresMax,
    Label,
    LateOption,
    Lease,
    LimitKey,
    LostMax,
    LostWait,
    NotBefore,
    OnLostOption,
    Part,
    PassOption,
    Payload,
    Prefer,
    Priority,
    Require,
    RunWithin,
    SlotCost,
    StartBy,
    Target,
    Then,
    ThenOption,
    Without,
)
from fleetlog.when import instant, span_s

ENDED: Final = frozenset({"COMPLETED", "CANCELLED", "DEAD", "DISCARDED"})
EXPLAIN_AFTER_S: Final = 2.0
"""How long `--wait` is silent before it says why the task waits."""


class BadLines(StrEnum):
    """What a line does that is no task or is refused."""

    stop = "stop"
    skip = "skip"


CommandId = Annotated[
    str | None, typer.Option("--command-id", metavar="UUID", help="Asking again with the same one is safe.")
]


@verb(
    "submit",
    WORK,
    POOL_AND_GATEWAY,
    ("fleetlog submit checksum --payload hello --wait", "fleetlog submit checksum --lines words.txt --priority 5"),
)
def submit(
    call: Call,
    kind: Annotated[str | None, typer.Argument(metavar="KIND", help="What is to be done.")] = None,
    payload: Payload = None,
    lines: Annotated[
        str | None,
        typer.Option(
            "--lines", "--file", metavar="FILE|-", help="A task for each line: with KIND a payload, else a whole task."
        ),
    ] = None,
    bad_lines: Annotated[
        BadLines, typer.Option("--bad-lines", help="With --lines: what a line does that is no task or is refused.")
    ] = BadLines.stop,
    again: Annotated[
        bool, typer.Option("--again", help="With --lines: submit the same file anew, as other tasks.")
    ] = False,
    task_id: Annotated[
        str | None, typer.Option("--id", metavar="TASK", help="Default: made from the command id.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end, and print the result.")] = False,
    priority: Priority = None,
    target: Target = None,
    limit_key: LimitKey = None,
    require: Require = None,
    prefer: Prefer = None,
    slot_cost: SlotCost = None,
    not_before: NotBefore = None,
    start_by: StartBy = None,
    end_by: EndBy = None,
    run_within: RunWithin = None,
    then: ThenOption = Then.alarm,
    lease: Lease = None,
    accept: Accept = None,
    failures_max: FailuresMax = None,
    backoff_first: Annotated[
        float | None, typer.Option("--backoff-first", metavar="SECONDS", min=0, help="Wait after its first failure.")
    ] = None,
    backoff_max: Annotated[
        float | None, typer.Option("--backoff-max", metavar="SECONDS", min=0, help="The longest wait after one.")
    ] = None,
    lost_max: LostMax = None,
    on_lost: OnLostOption = None,
    lost_wait: LostWait = None,
    passing: PassOption = None,
    late: LateOption = None,
    label: Label = None,
    command_id: CommandId = None,
) -> None:
    """Submit a task, or one for each line of a file.

    It is in the log when this returns. A payload that is JSON is taken as JSON, any other text as a string. A file is
    checked as a whole before anything is sent; the same command again, after any crash, submits nothing twice.
    """
    shared = task_fields(
        priority=priority,
        target=target,
        limit_key=limit_key,
        requirement=require,
        prefer=prefer,
        slot_cost=slot_cost,
        not_before=instant(not_before, "--not-before") if not_before else None,
        deadlines=deadlines_of(start_by, end_by, run_within, then.value),
        lease_s=lease,
        accept_s=accept,
        failures_max=failures_max,
        backoff_first=backoff_first,
        backoff_max=backoff_max,
        lost_max=lost_max,
        on_lost=on_lost.value if on_lost else None,
        lost_wait=lost_wait,
        labels=labels_of(label),
        late=late.value if late else None,
        **({"pass": passing.value} if passing else {}),
    )
    command = _command_id(command_id)
    if lines is not None:
        if payload is not None or task_id is not None:
            raise wrong_usage("--lines has payloads and ids of its own: leave out --payload and --id.")
        if again and command_id:
            raise wrong_usage("--again makes a new id for all lines: leave out --command-id.")
        _refuse_spans(not_before, start_by, end_by)
        _submit_lines(
            call, lines, kind, shared, wait, bad_lines is BadLines.skip, str(command) if command_id else None, again
        )
        return
    if again or bad_lines is not BadLines.stop:
        raise wrong_usage("--again and --bad-lines belong to --lines.")
    if kind is None:
        raise wrong_usage("what is to be done? Name the kind: fleetlog submit checksum --payload hello.")
    task = shared | body(id=task_id) | {"kind": kind, "payload": payload_of(payload)}
    _submit_one(call, task, command, wait)


def _command_id(given: str | None) -> uuid.UUID:
    try:
        return uuid.UUID(given) if given else uuid.uuid4()
    except ValueError:
        raise wrong_usage(f"--command-id {given!r} is no UUID.") from None


def _tasks_path(call: Call) -> str:
    return f"/v1/pools/{part(call.pool)}/tasks"


def _submit_one(call: Call, task: dict[str, Any], command: uuid.UUID, wait: bool) -> None:
    answer = call.gateway.post(_tasks_path(call), task, command_id=str(command))
    new = answer.get("changed", True)
    lacking = _lacking(answer)
    if not wait:
        call.gateway.settle(answer)
        call.out.say(answer, answer["id"] if new else f"{answer['id']} (known already, {answer['state']})")
        if lacking:
            call.out.note(lacking)
        return
    call.out.note(f"{answer['id']} submitted; waiting for its end.{' ' + lacking if lacking else ''}")
    ended = wait_for(call, answer["id"], bool(lacking), after=answer.get("position"))
    _show_end(call, ended, with_result=True)


def _lacking(answer: Item) -> str:
    """What is said where no registered robot can do the task."""
    if "unsatisfiable" not in answer:
        return ""
    conditions = [condition for condition in answer["unsatisfiable"] if condition != "slots>=1"]
    kinds = [condition.removeprefix("kind:") for condition in conditions if condition.startswith("kind:")]
    wanted = [condition for condition in conditions if not condition.startswith("kind:")]
    does = f" does {', '.join(kinds)}" if kinds else ""
    has = f"{' and' if does else ''} has {', '.join(wanted)}" if wanted else ""
    return f"No registered robot{does}{has or ('' if does else ' is free for this')} yet; the task waits for one."


def _refuse_spans(*given: str | None) -> None:
    """A span from now on would make other tasks of the same lines when the command is repeated. Raises Problem."""
    for text in given:
        if text is not None and span_s(text) is not None:
            raise wrong_usage(
                f"with --lines write an instant like 2026-11-30T09:15:00Z, not {text!r}: repeated, the command must "
                "mean the same tasks."
            )


def _submit_lines(
    call: Call,
    path: str,
    kind: str | None,
    shared: dict[str, Any],
    wait: bool,
    skip: bool,
    batch: str | None,
    again: bool,
) -> None:
    from fleetlog.submitting_lines import Wanted, submit_lines

    sent = submit_lines(call, path, kind, shared, Wanted(skip, batch, again))
    if wait:
        _wait_for_all(call, sent.ids, sent.position)


# ---- waiting ----


def wait_for(
    call: Call, task: str, explained: bool = False, give_up: float | None = None, after: str | None = None
) -> Item:
    """The task when it has ended. Says once why it waits. Raises Problem when the time is over.

    `after`: a position that the tables must have reached, as where it was submitted just now.
    """
    began = time.monotonic()
    if give_up is None and call.timeout_s is not None:
        give_up = began + call.timeout_s
    # A gateway that restarts meanwhile is waited for.
    call.gateway.timeout_s = max(call.timeout_s or 0.0, TIMEOUT_S)
    while True:
        left = WAIT_S if give_up is None else min(WAIT_S, give_up - time.monotonic())
        if left <= 0:
            raise no_answer(f"{task} has not ended in time: it goes on; ask again with `fleetlog wait {task}`.")
        wait_s = left if explained else min(left, EXPLAIN_AFTER_S)
        found: Item = call.gateway.get(f"{_tasks_path(call)}/{part(task)}", wait_s=round(wait_s, 3), after=after)
        if found["state"] in ENDED:
            return found
        if not explained and time.monotonic() - began >= EXPLAIN_AFTER_S:
            explained = True
            call.out.note(str(call.gateway.get(f"{_tasks_path(call)}/{part(task)}/why").get("text", "")))


def _show_end(call: Call, task: Item, with_result: bool) -> None:
    """Says how a task ended; raises Problem where it was not completed."""
    completed = task["state"] == "COMPLETED"
    result = None
    if completed and with_result:
        result = call.gateway.get(f"{_tasks_path(call)}/{part(str(task['id']))}/result")
    if call.out.as_json:
        call.out.json(dict(task) | ({"result": result} if completed and with_result else {}))
    else:
        call.out.note(ending(task))
        if completed and with_result:
            _print_result(call, result)
    if not completed:
        raise Problem(f"{task['id']} was not completed: see `fleetlog history {task['id']}`.")


def ending(task: Item) -> str:
    """How a task ended, in words."""
    text = f"{task['id']} {str(task['state']).lower()}"
    if task.get("robot"):
        text += f" by {task['robot']}" if task["state"] == "COMPLETED" else f" (last robot: {task['robot']})"
    if isinstance(task.get("ran_s"), int | float):
        text += f" after {duration(task['ran_s'])}"
    if task.get("dead_reason"):
        text += f" ({task['dead_reason']})"
    message = (task.get("error") or {}).get("message")
    return f"{text}: {message}" if message and task["state"] == "DEAD" else text


def _print_result(call: Call, result: Any) -> None:
    if isinstance(result, str):
        call.out.text(result)
    elif result is not None:
        call.out.text(json.dumps(result, ensure_ascii=False, indent=2 if call.out.terminal else None))


def _wait_for_all(call: Call, ids: list[str], after: str | None) -> None:
    give_up = None if call.timeout_s is None else time.monotonic() + call.timeout_s
    otherwise = 0
    with call.out.progress("wait", len(ids)) as advance:
        for task in ids:
            ended = wait_for(call, task, explained=True, give_up=give_up, after=after)
            if ended["state"] != "COMPLETED":
                otherwise += 1
                call.out.note(ending(ended))
            advance(1)
    if otherwise:
        raise Problem(f"{otherwise} of {len(ids)} tasks were not completed: see `fleetlog dead-letters`.")


@verb("wait", WORK, POOL_AND_GATEWAY, ("fleetlog wait order-17", "fleetlog wait order-17 order-18 --timeout 60"))
def wait(
    call: Call,
    tasks: Annotated[list[str], typer.Argument(metavar="TASK", help="Ids; - reads them from standard input.")],
) -> None:
    """Wait until tasks have ended. Exit code 1 where one was not completed, 3 when the time is over."""
    give_up = None if call.timeout_s is None else time.monotonic() + call.timeout_s
    otherwise = []
    for task in choosing.from_arguments(tasks):
        ended = wait_for(call, task, give_up=give_up)
        call.out.say(ended, ending(ended))
        if ended["state"] != "COMPLETED":
            otherwise.append(task)
    if otherwise:
        raise Problem(f"not completed: {', '.join(otherwise[:5])}; see `fleetlog history {otherwise[0]}`.")


@verb("result", WORK, POOL_AND_GATEWAY, ("fleetlog result order-17", "fleetlog result order-17 --wait --json"))
def result(
    call: Call,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end first.")] = False,
) -> None:
    """Print what a task came to: a text as it is, anything else as JSON."""
    found = wait_for(call, task) if wait else call.gateway.get(f"{_tasks_path(call)}/{part(task)}")
    if found["state"] != "COMPLETED":
        raise Problem(f"{task} has no result, it is {found['state']}: see `fleetlog why {task}`.")
    value = call.gateway.get(f"{_tasks_path(call)}/{part(task)}/result")
    if call.out.as_json:
        call.out.json(value)
    else:
        _print_result(call, value)


# ---- cancel, change ----


@verb(
    "cancel",
    WORK,
    POOL_AND_GATEWAY,
    ("fleetlog cancel order-18 --reason 'ordered twice'", "fleetlog cancel --where 'kind=report older=2h' --yes"),
)
def cancel(
    call: Call,
    tasks: Tasks = None,
    where: Where = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    token: Token = None,
    stop: Stop = False,
    reason: Reason = None,
) -> None:
    """Say that nobody wants tasks any more.

    One that does not run ends at once. The robot of a running one is told; it may still complete it.
    """
    act(call, "cancel", tasks, Bulk(where, yes, dry_run, token, stop), body(reason=reason), _cancelled)


def _cancelled(answer: Item) -> str:
    return "cancelled" if answer["state"] == "CANCELLED" else f"{answer['state']}: its robot is asked to stop"


@verb(
    "change",
    WORK,
    POOL_AND_GATEWAY,
    ("fleetlog change order-18 --priority 9", "fleetlog change --where 'kind=report' --not-before 2h --yes"),
)
def change(
    call: Call,
    tasks: Tasks = None,
    where: Where = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    token: Token = None,
    stop: Stop = False,
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
    without: Without = None,
    reason: Reason = None,
) -> None:
    """Change waiting tasks: what is given replaces what was, everything else stays."""
    changed = taking_away(without or []) | changes(
        priority, require, prefer, slot_cost, not_before, deadlines_of(start_by, end_by, run_within, then.value), label
    )
    bulk = Bulk(where, yes, dry_run, token, stop)
    if not changed and not (dry_run or token):
        raise wrong_usage(
            "what is to change? Give --priority, --require, --not-before, a deadline, --label or --without."
        )
    why = body(reason=reason)
    said = body(changed=changed or None) | why
    act(call, "change", tasks, bulk, said, _changed, lambda path, _: call.gateway.patch(path, changed | why))


def _changed(answer: Item) -> str:
    return "changed" if answer.get("changed", True) else "was so already"


EMPTY: Final[dict[Part, Any]] = {Part.requirement: [], Part.prefer: [], Part.deadlines: {}, Part.labels: {}}


def taking_away(parts: list[Part]) -> dict[str, Any]:
    """The fields of a task that are to be empty; where one is given as well, what is given counts."""
    return {part.value: EMPTY[part] for part in parts}


def changes(
    priority: int | None,
    require: list[str] | None,
    prefer: list[str] | None,
    slot_cost: int | None,
    not_before: str | None,
    deadlines: dict[str, Any] | None,
    label: list[str] | None,
) -> dict[str, Any]:
    """The fields of a task that are to change."""
    return body(
        priority=priority,
        requirement=require,
        prefer=prefer,
        slot_cost=slot_cost,
        not_before=instant(not_before, "--not-before") if not_before else None,
        deadlines=deadlines,
        labels=labels_of(label),
    )
