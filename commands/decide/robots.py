"""Robots and their sessions: hello, ready, update, fault, recovered, bye; drain, undrain, clear and retire."""

from collections.abc import Callable
from typing import Any, Final

from commands import events as e
from commands import inputs as i
from commands import messages as m
from commands.decide import answers as a
from commands.decide.answers import Context, Decision, Draft, accepted, refused
from commands.decide.attempts import attempt_stopped, has_stopped, resumed
from commands.decide.losing import after_loss, unwanted
from commands.ids import boot_of, name_id
from commands.inputs import Report
from commands.reasons import Refusal
from commands.state import Attempt, PoolState, Robot, Task

MINUTE_MS: Final = 60_000


def hello(state: PoolState, report: Report, context: Context) -> Decision:
    """A session begins. Attempts that the robot does not name are lost; those it names get a verdict.

    A repeat of the current session's hello gets its welcome again.
    """
    message = report.message
    if not isinstance(message, m.Hello):
        raise AssertionError(message.type)
    robot = state.robots.get(report.robot)
    if robot is None:
        if _is_older(message.id, state.retired.get(report.robot, "")):
            refusal = Refusal("forbidden", "this robot was retired; start it anew if it is to register again")
            return a.no(report.gateway, report.robot, message, refusal, closed=4004)
        return _new_session(state, Robot(report.robot), report, message, context)
    if robot.online and robot.hello == message.id:
        return Decision(drafts=_greeting(state, robot, message, _verdicts(state, robot, message), context.now))
    if any(_is_older(message.id, known) for known in (robot.hello, *robot.former)):
        refusal = Refusal("superseded", "this robot has said a newer hello since")
        return a.no(report.gateway, report.robot, message, refusal, closed=4001)
    clash = _two_programs(state, robot, report, message, context)
    return clash or _new_session(state, robot, report, message, context)


def _is_older(hello: str, newest: str) -> bool:
    """Whether a hello of the same program comes late or again: message ids are `<boot id>.<counter>`."""
    if hello == newest:
        return True
    (boot, _, number), (its_boot, _, its_number) = hello.rpartition("."), newest.rpartition(".")
    return boot == its_boot and number.isdecimal() and its_number.isdecimal() and int(number) <= int(its_number)


def _two_programs(
    state: PoolState, robot: Robot, report: Report, message: m.Hello, context: Context
) -> Decision | None:
    """More than five sessions of different programs within a minute: somebody started the same robot twice.

    Once that is known, hellos of other programs are refused until an operator's `clear`.
    """
    if boot_of(robot.hello) == boot_of(message.id):
        return None
    recent = [at for at in robot.supersessions if at > context.now - MINUTE_MS]
    known = robot.fault == "two_programs"
    if not known and (not robot.online or len(recent) < state.settings.supersessions_per_minute):
        return None
    refusal = Refusal("two_programs", f"two programs use the robot id {robot.id}")
    decision = a.no(report.gateway, report.robot, message, refusal, closed=4002)
    if not known:
        decision.events.append(e.RobotFaulted(robot=robot.id, epoch=robot.epoch, reason="two_programs"))
    return decision


def _new_session(state: PoolState, robot: Robot, report: Report, message: m.Hello, context: Context) -> Decision:
    now, events = context.now, list[e.Event]()
    if robot.id not in state.robots:
        events.append(e.RobotRegistered(robot=robot.id))
    epoch = state.sequence + len(events) + 1
    verdicts = _verdicts(state, robot, message)
    events.append(
        e.RobotSessionStarted(
            robot=robot.id,
            epoch=epoch,
            gateway=report.gateway,
            slots=message.slots,
            capabilities=list(dict.fromkeys(message.capabilities)),
            agent=message.agent,
            superseded_epoch=robot.epoch if robot.online else None,
            held=verdicts,
            hello=message.id,
            inline_max_bytes=message.inline_max_bytes,
        )
    )
    session = Robot(robot.id, epoch=epoch, gateway=report.gateway, draining=robot.draining)
    named = {(v.task, v.attempt) for v in verdicts}
    for verdict in verdicts:
        if verdict.verdict == "run" and state.tasks[verdict.task].state == "LOST":
            events.append(resumed(state, state.tasks[verdict.task], session, now))
    for task, current in _tasks_of(state, robot):
        if task.state == "RUNNING" and (task.id, task.attempt) not in named:
            events.append(_forgotten(state, task, current, session, now))
    if message.fault is not None and robot.fault != "two_programs":
        text, code = {"json": message.fault.text}, message.fault.code
        events.append(e.RobotFaulted(robot=robot.id, epoch=epoch, reason="reported", code=code, text=text))
    drafts = []
    if robot.online:
        gone = {"type": "superseded", "reason": "a newer session of this robot took over", "closed": 4001}
        drafts.append(a.to_robot(robot, gone))
    return Decision(events, drafts + _greeting(state, session, message, verdicts, now))


def _greeting(
    state: PoolState, session: Robot, message: m.Hello, verdicts: list[e.HeldVerdict], now: int
) -> list[Draft]:
    """Welcome, then what was said to the robot before and may have been lost: open assignments and cancels."""
    drafts = [_welcome(state, session, message, verdicts)]
    runs = {v.task for v in verdicts if v.verdict == "run"}
    for task, current in _tasks_of(state, state.robots.get(session.id, session)):
        end = unwanted(task, current)
        if task.state == "ASSIGNED":
            drafts.append(a.assign(state, session, task, current, assignment_id(state, task), now))
        elif end is not None and task.id in runs:
            drafts.append(a.cancel(session, task.id, task.attempt, None if current.cancel_requested else "deadline"))
    return drafts


def assignment_id(state: PoolState, task: Task) -> str:
    """The id of the TaskAssigned of the current attempt."""
    return name_id(state.pool, "TaskAssigned", task.sequence, task.attempt)


def _tasks_of(state: PoolState, robot: Robot) -> list[tuple[Task, Attempt]]:
    tasks = (state.tasks[name] for name in sorted(robot.tasks))
    return [(task, task.current) for task in tasks if task.current is not None]


def _verdicts(state: PoolState, robot: Robot, message: m.Hello) -> list[e.HeldVerdict]:
    """What the robot should do with each attempt that its hello names."""
    named = dict.fromkeys((held.task, held.attempt) for held in message.holding)
    return [_verdict(state, robot, task_id, attempt) for task_id, attempt in named]


def _verdict(state: PoolState, robot: Robot, task_id: str, attempt: int) -> e.HeldVerdict:
    task = state.tasks.get(task_id)
    current = None if task is None or task.attempt != attempt else task.current
    if task is None or current is None or current.robot != robot.id or has_stopped(task):
        reason = why_stop(task, state.ended.get(task_id), attempt)
        return e.HeldVerdict(task=task_id, attempt=attempt, verdict="stop", reason=reason)
    return e.HeldVerdict(task=task_id, attempt=attempt, verdict="accept" if task.state == "ASSIGNED" else "run")


def why_stop(task: Task | None, ended: Any, attempt: int) -> str:
    """Why the robot should stop an attempt that is not its own current one."""
    if task is None:
        return "unknown" if ended is None else "ended"
    if task.attempt > attempt:
        return "newer_attempt"
    if task.attempt < attempt or (task.current is not None and not has_stopped(task)):
        return "unknown"
    if task.state == "DEAD":
        return "ended"
    last_end = None if task.story is None else task.story.last_end
    return "released" if last_end == "released" else "expired"


def _forgotten(state: PoolState, task: Task, current: Attempt, session: Robot, now: int) -> e.LeaseExpired:
    """The robot said hello without naming this running attempt: its lease is over at once."""
    end = after_loss(state, task, current, now, forgotten=True)
    return e.LeaseExpired(
        task=task.id,
        origin="RUNNING",
        to=end.to,
        dead_reason=end.dead_reason,
        wait_until=end.wait_until,
        attempt=task.attempt,
        robot=current.robot,
        epoch=session.epoch,
        reason="not_held",
        held=end.held,
        held_until=end.held_until,
        lost=task.lost + 1,
        policy=task.terms.policy,  # type: ignore[arg-type]
    )


def _welcome(state: PoolState, session: Robot, message: m.Hello, verdicts: list[e.HeldVerdict]) -> Draft:
    held = []
    for verdict in verdicts:
        entry: dict[str, Any] = {"task": verdict.task, "attempt": verdict.attempt, "verdict": verdict.verdict}
        if verdict.reason is not None:
            entry["reason"] = verdict.reason
        current = state.tasks[verdict.task].current if verdict.verdict != "stop" else None
        if current is not None:
            entry["lease_ms"] = current.lease_ms
            if current.stop_after_ms is not None:
                entry["stop_after_ms"] = current.stop_after_ms
        held.append(entry)
    answer = {
        "type": "welcome",
        "of": message.id,
        "epoch": session.epoch,
        "protocol": m.PROTOCOL_NUMBER,
        **pace(state, state.last_at),
        "draining": session.draining,
        "held": held,
        "payload_max_bytes": m.BODY_BYTES_MAX,
    }
    return a.to_robot(session, answer)


def pace(state: PoolState, now: int) -> dict[str, int]:
    """How often a robot beats: twice a window, of the shorter one while a change is under way."""
    window_ms = min(state.window_ms_at(now), state.settings.window_ms)
    return {"window_ms": window_ms, "heartbeat_every_ms": window_ms // 2}


def ready(state: PoolState, report: Report, robot: Robot, context: Context) -> Decision:
    """At most n slots may be in use; an event only when n changes."""
    message: Any = report.message
    if message.n > robot.slots:
        refusal = Refusal("invalid_field", f"this robot has {robot.slots} slots", "/n")
        return a.no(report.gateway, report.robot, message, refusal)
    changed = message.n != robot.ready
    events: list[e.Event] = [e.RobotReadyChanged(robot=robot.id, epoch=robot.epoch, n=message.n)] if changed else []
    return Decision(events, [a.ack(robot, message)])


def update(state: PoolState, report: Report, robot: Robot, context: Context) -> Decision:
    """Other slots or capabilities while it runs."""
    message: Any = report.message
    slots = robot.slots if message.slots is None else message.slots
    asked = robot.capabilities if message.capabilities is None else message.capabilities
    capabilities = tuple(dict.fromkeys(asked))
    if message.slots is None and message.capabilities is None:
        refusal = Refusal("invalid_field", "give slots, capabilities or both", "/slots")
        return a.no(report.gateway, report.robot, message, refusal)
    if slots < robot.used:
        refusal = Refusal("slots_in_use", f"{robot.used} slots are in use", "/slots")
        return a.no(report.gateway, report.robot, message, refusal)
    events: list[e.Event] = []
    if (slots, capabilities) != (robot.slots, robot.capabilities):
        events.append(e.RobotChanged(robot=robot.id, epoch=robot.epoch, slots=slots, capabilities=list(capabilities)))
    return Decision(events, [a.ack(robot, message)])


def fault(state: PoolState, report: Report, robot: Robot, context: Context) -> Decision:
    """The robot cannot work: it keeps its leases and gets nothing new."""
    message: Any = report.message
    events: list[e.Event] = []
    if robot.fault is None:
        text = {"json": message.text}
        events.append(
            e.RobotFaulted(robot=robot.id, epoch=robot.epoch, reason="reported", code=message.code, text=text)
        )
    return Decision(events, [a.ack(robot, message)])


def recovered(state: PoolState, report: Report, robot: Robot, context: Context) -> Decision:
    """The fault that the robot reported is gone."""
    if robot.fault != "reported":
        refusal = Refusal("not_in_error", f"robot {robot.id} has no fault of its own report")
        return a.no(report.gateway, report.robot, report.message, refusal)
    return Decision([e.RobotRecovered(robot=robot.id, reason="reported")], [a.ack(robot, report.message)])


def bye(state: PoolState, report: Report, robot: Robot, context: Context) -> Decision:
    """I work on nothing: what it had is withdrawn or stopped, what was held is free."""
    events: list[e.Event] = []
    for task, current in _tasks_of(state, robot):
        if task.state == "ASSIGNED":
            events.append(_withdrawn(task, robot, "bye"))
        else:
            events.append(attempt_stopped(task, current, "bye", context.now))
    events += _holds_ended(state, robot)
    events.append(e.RobotSessionEnded(robot=robot.id, epoch=robot.epoch, reason="bye"))
    farewell = a.ack(robot, report.message)
    farewell.message["closed"] = 1000
    return Decision(events, [farewell])


def _withdrawn(task: Task, robot: Robot, reason: Any) -> e.AssignmentWithdrawn:
    return e.AssignmentWithdrawn(task=task.id, origin="ASSIGNED", attempt=task.attempt, robot=robot.id, reason=reason)


def _holds_ended(state: PoolState, robot: Robot) -> list[e.Event]:
    return [
        e.HoldEnded(
            task=hold.task,
            attempt=hold.attempt,
            robot=robot.id,
            target=None if hold.target is None else hold.target.name,
            why="stopped",
        )
        for hold in state.holds.values()
        if hold.robot == robot.id
    ]


MESSAGES: Final[dict[str, Callable[[PoolState, Report, Robot, Context], Decision]]] = {
    "ready": ready,
    "update": update,
    "fault": fault,
    "recovered": recovered,
    "bye": bye,
}


# ---- verbs of operators ----


def drain(state: PoolState, command: i.DrainRobot, context: Context) -> Decision:
    """Nothing new for this robot."""
    return _toggle(state, command, context, draining=True)


def undrain(state: PoolState, command: i.UndrainRobot, context: Context) -> Decision:
    """Work again for this robot."""
    return _toggle(state, command, context, draining=False)


def _toggle(state: PoolState, command: Any, context: Context, draining: bool) -> Decision:
    robot = state.robots.get(command.body.robot)
    if robot is None:
        return refused(command, _no_such_robot(command.body.robot))
    if robot.draining == draining:
        return _noted(state, command, context)
    shape = e.RobotDrained if draining else e.RobotUndrained
    decision = _accepted(state, command, context, shape(robot=robot.id, reason=command.body.reason))
    if robot.online:
        decision.drafts.append(a.to_robot(robot, {"type": "session_note", "draining": draining}))
    return decision


def clear(state: PoolState, command: i.ClearRobot, context: Context) -> Decision:
    """Out of ERROR by an operator's word."""
    robot = state.robots.get(command.body.robot)
    if robot is None:
        return refused(command, _no_such_robot(command.body.robot))
    if robot.fault is None:
        return refused(command, Refusal("not_in_error", f"robot {robot.id} is not in ERROR"))
    return _accepted(state, command, context, e.RobotRecovered(robot=robot.id, reason="cleared"))


def retire(state: PoolState, command: i.RetireRobot, context: Context) -> Decision:
    """Forget the robot; it must not hold anything that runs."""
    robot = state.robots.get(command.body.robot)
    if robot is None:
        return refused(command, _no_such_robot(command.body.robot))
    if not command.body.reason:
        return refused(command, Refusal("reason_required", "say why; it is recorded", "/reason"))
    tasks = _tasks_of(state, robot)
    if any(task.state != "ASSIGNED" for task, _ in tasks) or _holds_ended(state, robot):
        return refused(command, Refusal("robot_has_attempts", f"robot {robot.id} still holds attempts"))
    events: list[e.Event] = [_withdrawn(task, robot, "retired") for task, _ in tasks]
    if robot.online:
        events.append(e.RobotSessionEnded(robot=robot.id, epoch=robot.epoch, reason="retired"))
    events.append(e.RobotRetired(robot=robot.id, reason=command.body.reason))
    decision = _accepted(state, command, context, *events)
    if robot.online:
        decision.drafts.append(a.to_robot(robot, {"type": "session_note", "closed": 4004}))
    return decision


def _no_such_robot(robot: str) -> Refusal:
    return Refusal("no_such_robot", f"there is no robot {robot} in this pool")


def _answer(state: PoolState, command: Any, context: Context, changed: bool) -> dict[str, Any]:
    return {"robot": command.body.robot, "changed": changed, "sequence": state.sequence + 1, "at": context.now}


def _accepted(state: PoolState, command: Any, context: Context, *events: e.Event) -> Decision:
    return accepted(command, _answer(state, command, context, True), *events)


def _noted(state: PoolState, command: Any, context: Context) -> Decision:
    noted = e.CommandNoted(command=command.id, answer={"changed": False})
    return accepted(command, _answer(state, command, context, False), noted)


VERBS: Final[dict[str, Callable[[PoolState, Any, Context], Decision]]] = {
    "drain": drain,
    "undrain": undrain,
    "clear": clear,
    "retire": retire,
}
