"""The one entrance: which function decides which input, and what holds for all of them."""

from collections.abc import Callable
from typing import Any, Final

from commands import inputs as i
from commands.decide import answers, attempts, explain, limits, pools, robots, schedules, submit, tasks
from commands.decide.answers import Context, Decision, accepted, refused, task_answer
from commands.evolve.memory import command_key
from commands.ids import content_digest
from commands.inputs import Report
from commands.reasons import Refusal
from commands.remembered import Remembered
from commands.schedules import firing_id
from commands.state import PoolState

_VERBS: Final[dict[str, Callable[[PoolState, Any, Context], Decision]]] = {
    "submit_all": submit.submit_all,
    **tasks.VERBS,
    **robots.VERBS,
    **pools.VERBS,
    **limits.VERBS,
    **schedules.VERBS,
}
_ATTEMPT_REPORTS: Final[dict[str, Callable[[attempts.About], Decision]]] = {
    "accept": attempts.accept,
    "reject": attempts.reject,
    "checkpoint": attempts.checkpoint,
    "complete": attempts.complete,
    "fail": attempts.fail,
    "stopped": attempts.stopped,
}


def decide(state: PoolState, asked: Any, context: Context) -> Decision:
    """What follows from a command or report: events and outcomes. Pure; a refusal is an outcome without events."""
    if isinstance(asked, Report):
        return _decide_report(state, asked, context)
    if not state.exists and asked.type != "pool_create":
        return refused(asked, Refusal("no_such_pool", f"there is no pool {state.pool}"))
    if asked.type == "explain":
        return explain.explain(state, asked, context)
    return _decide_command(state, asked, context)


def _decide_command(state: PoolState, command: Any, context: Context) -> Decision:
    """A command that was accepted before is answered as it was then; other content under its id is refused."""
    digest = command_digest(command)
    memory = state.commands.get(command_key(command.actor, command.id))
    if memory is not None:
        if memory.digest != bytes.fromhex(digest)[:16]:
            return refused(command, Refusal("command_id_conflict", "this command id was used for something else"))
        return accepted(command, _as_answered(state, command, memory))
    if isinstance(command, i.Submit):
        decision = submit.submit(state, command, context, digest)
    else:
        decision = _VERBS[command.type](state, command, context)
    if decision.events:
        decision.events[0].command_digest = digest
    return decision


def command_digest(command: Any) -> str:
    """SHA-256 (hex) of what is asked, whoever asks and wherever the answer goes."""
    if isinstance(command, i.Submit):
        return submit.submission_digest(command.body)
    return content_digest([command.type, i.body_as_json(command)])


def _as_answered(state: PoolState, command: Any, memory: Remembered) -> dict[str, Any]:
    """The answer that an accepted command was given, from what is remembered of it."""
    body, sequence, at = command.body, memory.sequence, memory.at
    if isinstance(command, i.SubmitAll):
        return {"tasks": _all_as_answered(state, body, memory)}
    if isinstance(body, i.ScopeBody):
        return {"scope": body.scope, "name": body.name, "changed": memory.changed, "sequence": sequence, "at": at}
    if isinstance(body, i.LimitVerb):
        return limits.limit_answer(body, memory.changed, sequence, at)
    if isinstance(command, i.FireSchedule):
        fired = firing_id(body.schedule, at - at % 1_000)
        return task_answer(fired, memory.state or "WAITING", memory.attempt, sequence, at)
    if isinstance(body, i.ScheduleVerb | i.ScheduleBody):
        return schedules.schedule_answer(body.schedule, memory.changed, sequence, at)
    if isinstance(body, i.RobotVerb):
        return {"robot": body.robot, "changed": memory.changed, "sequence": sequence, "at": at}
    task = getattr(body, "task", None)
    if task is None:
        return {"pool": command.pool, "changed": memory.changed, "sequence": sequence, "at": at}
    lacks = {"unsatisfiable": submit.wanted(body)} if memory.lacks else {}
    return task_answer(task, memory.state or "WAITING", memory.attempt, sequence, at, memory.changed, **lacks)


def _all_as_answered(state: PoolState, body: i.Submissions, memory: Remembered) -> list[dict[str, Any]]:
    """Each task of a submission of several: new ones as they were then, those known before as they stand."""
    answers: dict[str, dict[str, Any]] = {}
    rows = [(t.task, state.tasks.get(t.task) or state.ended.get(t.task)) for t in body.tasks]
    found = []
    for task, row in rows:
        first, at = memory.sequence, memory.at
        if row is None or first <= row.sequence < first + len(rows):
            new = task not in answers
            sequence = row.sequence if row is not None and new else first
            answers[task] = task_answer(task, "WAITING", 0, sequence, at, new)
        else:
            answers[task] = task_answer(task, row.state, row.attempt, first, at, False)
        found.append(answers[task])
    return found


def _decide_report(state: PoolState, report: Report, context: Context) -> Decision:
    """A robot's message counts only in its current session; hello begins one."""
    message = report.message
    if not state.exists:
        refusal = Refusal("no_such_pool", f"there is no pool {state.pool}")
        return answers.no(report.gateway, report.robot, message, refusal)
    if message.type == "hello":
        return robots.hello(state, report, context)
    robot = state.robots.get(report.robot)
    if robot is None or not robot.online or message.epoch != robot.epoch:
        refusal = Refusal("no_session", "this session is over, say hello again")
        return answers.no(report.gateway, report.robot, message, refusal)
    about_attempt = _ATTEMPT_REPORTS.get(message.type)
    if about_attempt is not None:
        return about_attempt(attempts.about(state, report, robot, context))
    about_robot = robots.MESSAGES.get(message.type)
    if about_robot is None:
        return answers.no(report.gateway, report.robot, message, Refusal("unknown_type", f"{message.type}?"))
    return about_robot(state, report, robot, context)
