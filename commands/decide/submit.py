"""Submissions: what may be asked for, the effective values, the same id again."""

from typing import Any, Final

from pydantic import TypeAdapter

from commands import inputs as i
from commands.decide.answers import Context, Decision, accepted, refused, task_answer
from commands.events import CommandNoted, Deadlines, Event, OnLost, Retry, TaskSubmitted
from commands.ids import content_digest
from commands.reasons import Refusal
from commands.requirements import condition_problem, kind_condition, meets
from commands.state import PoolState
from commands.vocabulary import INTEGER_MAX, KIND_CHARS_MAX, PRIORITY_MAX, is_name

TASK_LABELS_MAX: Final = 64
CONDITIONS_MAX: Final = 64
SLOT_COST_MAX: Final = 1024
DAY_MS: Final = 86_400_000
QUEUE_FULL_RETRY_MS: Final = 5_000
SUBMISSION: Final[TypeAdapter[i.Submission]] = TypeAdapter(i.Submission)


def submit(state: PoolState, command: i.Submit, context: Context, digest: str) -> Decision:
    """One task; `digest` is that of its content."""
    body = command.body
    known = known_task(state, body.task, digest)
    if isinstance(known, Refusal):
        return refused(command, known)
    if known is not None:
        answer = task_answer(body.task, known[0], known[1], state.sequence + 1, context.now, False)
        noted = CommandNoted(command=command.id, answer={"task": body.task, "state": known[0], "attempt": known[1]})
        return accepted(command, answer, noted)
    event = _submitted(state, body, digest, context.now, 0, {})
    if isinstance(event, Refusal):
        return refused(command, event)
    answer = task_answer(body.task, "WAITING", 0, state.sequence + 1, context.now, **_who_lacks(state, event))
    return accepted(command, answer, event)


def submit_all(state: PoolState, command: i.SubmitAll, context: Context) -> Decision:
    """Several tasks, all or none; known ones with the same content count as done."""
    events: list[Event] = []
    answers = []
    seen: dict[str, str] = {}
    lanes: dict[tuple[Any, ...], None] = {}
    for index, body in enumerate(command.body.tasks):
        digest = submission_digest(body)
        known = known_task(state, body.task, digest)
        if known is None and body.task in seen:
            known = ("WAITING", 0) if seen[body.task] == digest else _id_conflict(body.task)
        if isinstance(known, Refusal):
            return refused(command, _at(known, index))
        if known is not None:
            answers.append(task_answer(body.task, known[0], known[1], state.sequence + 1, context.now, False))
            continue
        event = _submitted(state, body, digest, context.now, len(events), lanes)
        if isinstance(event, Refusal):
            return refused(command, _at(event, index))
        seen[body.task] = digest
        answers.append(task_answer(body.task, "WAITING", 0, state.sequence + 1 + len(events), context.now))
        events.append(event)
    if not events:
        events = [CommandNoted(command=command.id, answer={"changed": False})]
    return accepted(command, {"tasks": answers}, *events)


def _at(refusal: Refusal, index: int) -> Refusal:
    return Refusal(
        refusal.reason, f"task {index}: {refusal.text}", f"/tasks/{index}{refusal.field or ''}", refusal.retry_after_ms
    )


def submission_digest(body: i.Submission) -> str:
    """SHA-256 (hex) of what was asked, before any default."""
    return content_digest(SUBMISSION.serializer.to_python(body, exclude_none=True, by_alias=True))


def known_task(state: PoolState, task_id: str, digest: str) -> tuple[str, int] | Refusal | None:
    """State and attempt of a task that is known by this id and content; a refusal where the content is another."""
    row = state.tasks.get(task_id) or state.ended.get(task_id)
    if row is None:
        return None
    return (row.state, row.attempt) if row.digest == bytes.fromhex(digest)[:16] else _id_conflict(task_id)


def _id_conflict(task_id: str) -> Refusal:
    return Refusal("id_conflict", f"task {task_id} exists with other content", "/id")


def _submitted(
    state: PoolState, body: i.Submission, digest: str, now: int, ahead: int, lanes: dict[tuple[Any, ...], None]
) -> TaskSubmitted | Refusal:
    """The event, or why not. `ahead` and `lanes` count what the same command has added already."""
    problem = submission_problem(body) or deadlines_problem(body.deadlines, now) or lease_problem(state, body, now)
    return problem or placed(state, body, digest, now, ahead, lanes)


def placed(
    state: PoolState, body: i.Submission, digest: str, now: int, ahead: int, lanes: dict[tuple[Any, ...], None]
) -> TaskSubmitted | Refusal:
    """The event of a submission that is right in itself, or why the queue has no place for it."""
    if state.queue.waiting + ahead >= state.settings.queue_max:
        text = f"{state.settings.queue_max} tasks wait already"
        return Refusal("queue_full", text, retry_after_ms=QUEUE_FULL_RETRY_MS)
    event = _effective(state, body, digest, now)
    key = (tuple(event.requirement), event.slot_cost, event.kind, event.limit_key)
    return lane_problem(state, key, lanes) or event


def lane_problem(state: PoolState, key: tuple[Any, ...], lanes: dict[tuple[Any, ...], None]) -> Refusal | None:
    """Why no task of the lane `key` may wait, or None; `lanes` are new ones of the same command, and `key` joins."""
    if key in state.queue.lanes or key in lanes:
        return None
    lanes[key] = None
    if len(state.queue.lanes) + len(lanes) <= state.settings.lanes_max:
        return None
    text = f"{state.settings.lanes_max} combinations of requirement, kind and limit key wait already"
    return Refusal("too_many_lanes", text, "/requirement")


def _effective(state: PoolState, body: i.Submission, digest: str, now: int) -> TaskSubmitted:
    pool, retry = state.settings, body.retry or i.RetryAsked()
    window_ms = state.window_ms_at(now)
    lease_ms = pool.lease_ms if body.lease_ms is None else body.lease_ms
    windows = state.windows_of(lease_ms, now)
    on_lost = body.on_lost or i.OnLostAsked(policy=pool.on_lost)  # type: ignore[arg-type]
    wait_ms = pool.wait_ms if on_lost.wait_ms is None else on_lost.wait_ms
    return TaskSubmitted(
        task=body.task,
        kind=body.kind,
        payload=body.payload,
        requirement=sorted(set(body.requirement)),
        prefer=list(dict.fromkeys(body.prefer)),
        slot_cost=body.slot_cost,
        target=body.target,
        priority=body.priority,
        not_before=body.not_before,
        deadlines=body.deadlines,
        lease_ms=windows * window_ms,
        windows=windows,
        accept_ms=pool.accept_ms if body.accept_ms is None else body.accept_ms,
        retry=Retry(
            failures_max=retry.failures_max or pool.failures_max,
            first_ms=pool.backoff_first_ms if retry.first_ms is None else retry.first_ms,
            factor=retry.factor or pool.backoff_factor,
            max_ms=pool.backoff_max_ms if retry.max_ms is None else retry.max_ms,
        ),
        lost_max=body.lost_max or pool.lost_max,
        on_lost=OnLost(policy=on_lost.policy, wait_ms=wait_ms if on_lost.policy == "wait" else None),
        passing=body.passing or pool.passing,  # type: ignore[arg-type]
        late=body.late or pool.late,  # type: ignore[arg-type]
        limit_key=body.limit_key,
        labels=body.labels,
        digest=digest,
    )


def _who_lacks(state: PoolState, event: TaskSubmitted) -> dict[str, Any]:
    """For the answer: that no registered robot can run it, if so."""
    requirement, slot_cost = (*event.requirement, kind_condition(event.kind)), event.slot_cost
    need = state.queue.needs.get((requirement, slot_cost))
    robots = need.able.values() if need is not None else state.robots.values()
    able = any(r.slots >= slot_cost and meets(requirement, r.abilities) for r in robots)
    return {} if able else {"unsatisfiable": wanted(event)}


def wanted(task: TaskSubmitted | i.Submission) -> list[str]:
    """What a robot must have to run the task."""
    return [*sorted(set(task.requirement)), kind_condition(task.kind), f"slots>={task.slot_cost}"]


def lease_problem(state: PoolState, body: i.Submission, now: int) -> Refusal | None:
    """What is wrong with the lease in this pool, or None."""
    least = 3 * state.window_ms_at(now)
    if body.lease_ms is not None and body.lease_ms < least:
        return Refusal("lease_too_short", f"a lease has at least three windows of this pool, {least} ms", "/lease")
    return None


def deadlines_problem(deadlines: Deadlines | None, now: int) -> Refusal | None:
    """A deadline that has passed already is a mistake."""
    for name in ("start", "end"):
        deadline = getattr(deadlines, name, None)
        if deadline is not None and deadline.at > INTEGER_MAX:
            return Refusal("invalid_field", "not an instant", f"/deadlines/{name}/at")
        if deadline is not None and deadline.at <= now:
            return Refusal("deadline_passed", f"the {name} deadline has passed already", f"/deadlines/{name}/at")
    run = getattr(deadlines, "run", None)
    if run is not None and not 0 < run.ms <= INTEGER_MAX:
        return Refusal("invalid_field", "a run deadline is a positive time", "/deadlines/run")
    return None


def submission_problem(body: i.Submission) -> Refusal | None:
    """What is wrong with a submission whatever the pool, or None; the gateway asks before it sends."""
    checks: list[tuple[bool, str, str]] = [
        (is_name(body.task), "/id", "an id is letters, digits and . _ : - (at most 128, the first a letter or digit)"),
        (is_name(body.kind, KIND_CHARS_MAX), "/kind", "a kind is letters, digits and . _ : - (at most 64)"),
        (body.target is None or is_name(body.target), "/target", "a target is named like an id"),
        (body.limit_key is None or is_name(body.limit_key), "/limit_key", "a limit key is named like an id"),
        (0 <= body.priority <= PRIORITY_MAX, "/priority", "a priority is 0 to 9"),
        (1 <= body.slot_cost <= SLOT_COST_MAX, "/slot_cost", "a slot cost is 1 to 1024"),
        (_within(body.not_before, 0, INTEGER_MAX), "/not_before", "not an instant"),
        (_within(body.lease_ms, 1, DAY_MS), "/lease", "a lease is at most 24 hours"),
        (_within(body.accept_ms, 500, 600_000), "/accept", "the time to accept is 0.5 to 600 s"),
        (_within(body.lost_max, 1, 100), "/lost_max", "1 to 100"),
    ]
    for fine, field, text in checks:
        if not fine:
            return Refusal("invalid_field", text, field)
    return (
        labels_problem(body.labels)
        or requirement_problem(body.requirement, "/requirement")
        or requirement_problem(body.prefer, "/prefer")
    )


def labels_problem(labels: dict[str, str]) -> Refusal | None:
    """What is wrong with labels."""
    if len(labels) > TASK_LABELS_MAX:
        return Refusal("invalid_field", "at most 64 labels", "/labels")
    if all(is_name(name) and len(value) <= 256 for name, value in labels.items()):
        return None
    return Refusal("invalid_field", "a label has a name like an id and a value of at most 256", "/labels")


def requirement_problem(conditions: list[str] | None, field: str) -> Refusal | None:
    """What is wrong with a list of conditions."""
    if conditions is not None and len(conditions) > CONDITIONS_MAX:
        return Refusal("invalid_field", "at most 64 conditions", field)
    for text in conditions or ():
        problem = condition_problem(text) if len(text) <= 128 else "a condition has at most 128 characters"
        if problem is not None:
            return Refusal("invalid_field", problem, field)
    return None


def _within(value: int | None, low: int, high: int) -> bool:
    return value is None or low <= value <= high
