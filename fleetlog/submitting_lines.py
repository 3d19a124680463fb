"""Submitting a file of lines over one pipelined connection, in the order of the lines, with progress.

Nothing is sent before the whole file was checked. Every task has its id before it is sent, so that the same command
after any crash, of this program or of the gateway, finds what is there already and goes on behind it.
"""

import uuid
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from fleetlog.asking import TIMEOUT_S
from fleetlog.lines import BAD_SHOWN, BATCH_LINES, Checked, LinesFile, in_batches
from fleetlog.output import Item
from fleetlog.problems import WRONG_USAGE, Problem, no_answer
from fleetlog.verb import Call

if TYPE_CHECKING:
    from robot_gateway.sdk.calls import Submitted

IDS_SHOWN: Final = 20
"""On a terminal, ids of no more tasks than this are printed."""

Group = list[tuple[int, dict[str, Any]]]


@dataclass(slots=True)
class Sent:
    """What came of the lines so far. `refused`: line -> why. `position`: behind the last answer."""

    submitted: int = 0
    known: int = 0
    refused: dict[int, str] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    position: str | None = None

    @property
    def answered(self) -> int:
        """Lines that have their answer."""
        return self.submitted + self.known + len(self.refused)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options say: `skip` bad lines instead of stopping, the batch's id if one was given, or a new one."""

    skip: bool
    batch: str | None
    again: bool


def submit_lines(call: Call, path: str, kind: str | None, shared: dict[str, Any], wanted: Wanted) -> Sent:
    """Submits every line that is a task. Raises Problem where a line is bad or refused, unless `skip`."""
    lines = LinesFile(path, kind, shared)
    call.parts.callback(lines.close)
    limit = int(call.gateway.get("/v1/version").get("payload_max_bytes", 262_144))
    checked = lines.check(limit)
    _tell_bad(call, lines, checked, wanted.skip)
    batch = wanted.batch or (str(uuid.uuid4()) if wanted.again else lines.batch(checked))
    sent = Sent()
    try:
        _send_all(call, lines, checked, batch, sent, wanted.skip)
    except (Problem, KeyboardInterrupt) as ended:
        if isinstance(ended, Problem) and sent.refused:
            call.gateway.settle({"pool": call.pool, "position": sent.position})
        call.out.note(
            f"{sent.submitted + sent.known} of {checked.tasks} lines are in. The same command goes on behind them; "
            f"with a corrected file say --command-id {batch} too."
        )
        raise
    call.gateway.settle({"pool": call.pool, "position": sent.position})
    _tell_end(call, checked, sent)
    return sent


def _tell_bad(call: Call, lines: LinesFile, checked: Checked, skip: bool) -> None:
    """Names the bad lines. Raises Problem unless they are to be skipped."""
    for number, wrong in list(checked.bad.items())[:BAD_SHOWN]:
        call.out.note(f"line {number} of {lines.name}: {wrong}")
    if len(checked.bad) > BAD_SHOWN:
        call.out.note(f"... and {len(checked.bad) - BAD_SHOWN} more")
    if checked.bad and not skip:
        count = len(checked.bad)
        bad = "one line is" if count == 1 else f"{count} lines are"
        text = (
            f"{bad} no task, nothing was submitted: correct {'it' if count == 1 else 'them'}, or say --bad-lines skip."
        )
        raise Problem(text, WRONG_USAGE)


def _send_all(call: Call, lines: LinesFile, checked: Checked, batch: str, sent: Sent, skip: bool) -> None:
    """Two messages at most are without answer: the owner has work, and the order of the lines is that of the queue."""
    from robot_gateway.sdk.submitter import Submitter

    stalled_s = call.timeout_s or TIMEOUT_S
    open_groups: deque[tuple[Group, Future[list[Submitted]]]] = deque()
    prints = not call.out.terminal or checked.tasks <= IDS_SHOWN
    submitter = Submitter(call.gateway.url, pool=call.pool, token=call.token(), retry_for_s=float("inf"))
    try:
        with call.out.progress("submit", checked.tasks) as advance:

            def take_answer() -> None:
                group, future = open_groups.popleft()
                answers = _answer(group, future, stalled_s)
                try:
                    _take(call, group, answers, sent, skip, prints)
                except Problem:
                    # What is on its way is in, or not; the user is told how many are.
                    for later, answer in open_groups:
                        with suppress(Problem):
                            _take(call, later, _answer(later, answer, stalled_s), sent, True, prints)
                    raise
                advance(len(group))

            for group in in_batches(lines.tasks(checked, batch)):
                if len(open_groups) * BATCH_LINES >= 2 * BATCH_LINES:
                    take_answer()
                open_groups.append((group, submitter.submit_many([_as_sdk(task) for _, task in group])))
            while open_groups:
                take_answer()
    finally:
        submitter.close()


def _answer(group: Group, future: "Future[list[Submitted]]", stalled_s: float) -> "list[Submitted]":
    """What came of a group. Raises Problem where there was no answer, or the message as a whole was refused."""
    from robot_gateway.sdk.calls import Submitted
    from robot_gateway.sdk.errors import FleetlogError

    try:
        return future.result(stalled_s)
    except TimeoutError:
        text = f"nothing was answered for {stalled_s:g} s: is the gateway there? See `fleetlog doctor`."
        raise no_answer(text) from None
    except FleetlogError as error:
        if len(group) == 1:  # a message with one task is refused as that task
            return [Submitted(None, error)]
        raise Problem(
            f"{error}: nothing of lines {group[0][0]} to {group[-1][0]} was taken. [{error.reason}]"
        ) from None


def _take(call: Call, group: Group, answers: "list[Submitted]", sent: Sent, skip: bool, prints: bool) -> None:
    """Counts what came of a group. Raises Problem for a refused line, unless it is to be skipped."""
    for (number, task), answer in zip(group, answers, strict=True):
        if answer.error is not None:
            field_name = (answer.error.field or "").strip("/")
            why = f"{field_name}: {answer.error}" if field_name else str(answer.error)
            sent.refused[number] = why
            call.out.note(f"line {number}: {why} [{answer.error.reason}]")
            if call.out.as_json:
                problem = {"reason": answer.error.reason, "detail": str(answer.error), "field": answer.error.field}
                call.out.json({"line": number, "problem": problem})
            continue
        assert answer.task is not None  # noqa: S101 - an entry without an error has a task
        known = answer.task.raw.get("changed") is False
        sent.known += known
        sent.submitted += not known
        sent.ids.append(task["id"])
        sent.position = answer.task.position or sent.position
        if call.out.as_json:
            call.out.json(dict(answer.task.raw))
        elif prints and not call.out.quiet:
            call.out.text(task["id"])
    if sent.refused and not skip:
        raise Problem(f"line {next(iter(sent.refused))} was refused, the reason stands above: nothing more was sent.")


def _tell_end(call: Call, checked: Checked, sent: Sent) -> None:
    counts = {
        "submitted": sent.submitted,
        "known": sent.known,
        "refused": len(sent.refused),
        "skipped": len(checked.bad),
    }
    if not call.out.as_json:
        said = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing to submit"
        call.out.note(f"{said}.")
    if sent.known and not sent.submitted:
        call.out.note("all of it was submitted before; --again submits it anew.")
    left_out = len(sent.refused) + len(checked.bad)
    if left_out:
        raise Problem(f"{left_out} of {checked.tasks + len(checked.bad)} lines were left out; the reasons stand above.")


def _as_sdk(task: Item) -> dict[str, Any]:
    """A task in the shape of HTTP as the submitter's connection takes it."""
    on_lost = task.get("on_lost")
    if not isinstance(on_lost, dict):
        return dict(task)
    wait = {"wait_s": on_lost["wait_s"]} if "wait_s" in on_lost else {}
    return {**task, "on_lost": on_lost["policy"]} | wait
