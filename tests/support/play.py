"""Scenario tables: what is asked and said, when, and what must follow; written so that an operator can review them.

    t+0    submit   t1 lease=15              -> TaskSubmitted t1
    t+0    robot    r1 slots=2 caps=gpu      -> TaskAssigned t1 #1 r1
    t+1    accept   r1 t1                    -> LeaseStarted t1
    t+21   wait                              -> LeaseExpired t1 WAITING, TaskAssigned t1 #2
    t+21   complete r1 t1 #1                 -> refused not_yours

Rows have a time (seconds, and `t+1.5`), a verb with its words, and after the arrow what was seen since the row
before: events in order, or an answer. An event is its name and any words that stand in its fields (`#2`: attempt 2;
`field=value`: just that field; `field=` that it is absent). QUIET events need not be named. Answers: `ack`, `late`,
`refused REASON`, `unchanged`, `same` (as the answer before), `told R TYPE words` (a message that robot R got). A row
that names no event may be followed by any; `-> nothing` by none at all but quiet ones.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from commands import events as e
from commands import inputs as i
from commands import messages as m
from tests.support.world import START_AT, Message, Robot, World

QUIET: Final = {
    "PoolCreated", "TaskSubmitted", "RobotRegistered", "RobotSessionStarted", "RobotReadyChanged", "WindowMissed",
    "RequirementUnsatisfiable", "RequirementSatisfiable", "CommandNoted", "OwnershipTaken", "ProgressNoted",
}  # fmt: skip
_ROW: Final = re.compile(r"t\+(?P<at>[\d.]+)\s+(?P<verb>\w+)(?P<words>.*?)(?:\s->\s+(?P<seen>.*))?$")
_SECONDS: Final = {
    "lease": "lease_ms", "accept": "accept_ms", "wait": "wait_ms", "first": "first_ms", "max": "max_ms"
}  # fmt: skip


def play(table: str, world: World | None = None, **settings: Any) -> World:
    """Plays a table on `world` (or a new one with `settings`) and verifies the log; returns the world."""
    world = world or World(settings=settings)
    player = _Player(world)
    for line in table.strip().splitlines():
        if line.strip() and not line.strip().startswith("#"):
            player.row(line.strip())
    world.verify()
    return world


class _Player:
    def __init__(self, world: World) -> None:
        self.world = world
        self.answer: Message = {}
        self.before: Message = {}
        self.events_seen = len(world.log)
        self.told_seen: dict[str, int] = {}

    def row(self, line: str) -> None:
        row = _ROW.match(line)
        assert row is not None, f"not a row: {line}"
        self.world.wait((START_AT - self.world.now) / 1000 + float(row["at"]))
        self.before = self.answer
        words = row["words"].split()
        answer = _VERBS[row["verb"]](self.world, *_split(words))
        self.answer = answer or {}
        seen = self.world.events[self.events_seen :]
        self.events_seen = len(self.world.log)
        if row["seen"] is not None:
            self._compare(line, row["seen"], seen)
        self.told_seen = {name: len(robot.told) for name, robot in self.world.robots.items()}

    def _compare(self, line: str, expected: str, seen: list[Any]) -> None:
        shown = "\n".join(f"    {_show(event)}" for event in seen) or "    no events"
        report = f"\n  {line}\nseen:\n{shown}\nanswer: {self.answer}"
        left = list(seen)
        items = expected.split(", ")
        for item in items:
            name, *words = item.split()
            if name in _ANSWERS:
                assert _ANSWERS[name](self, words), f"{item} was expected{report}"
            elif name != "nothing":
                while left and left[0].name != name and left[0].name in QUIET:
                    left.pop(0)
                assert left, f"{item} was expected, nothing more was seen{report}"
                problem = _differs(left.pop(0), name, words)
                assert problem is None, f"{item} was expected: {problem}{report}"
        only_answers = all(item.split()[0] in _ANSWERS for item in items)
        loud = [event for event in left if event.name not in QUIET]
        assert only_answers or not loud, f"{', '.join(event.name for event in loud)} was not expected{report}"


def _differs(event: Any, name: str, words: list[str]) -> str | None:
    if event.name != name:
        return f"it was {event.name}"
    values = {str(value) for value in _fields(event).values() if not isinstance(value, bool)}
    for word in words:
        field, equals, value = word.partition("=")
        if equals:
            has = getattr(event, field)
            if ("" if has is None else str(has)) != value:
                return f"{field} is {has}"
        elif word.startswith("#"):
            if event.attempt != int(word[1:]):
                return f"it is about attempt {event.attempt}"
        elif word not in values:
            return f"{word} is not in it"
    return None


def _fields(event: Any) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__dataclass_fields__}


def _show(event: Any) -> str:
    kept = {
        name: value
        for name, value in _fields(event).items()
        if value not in (None, [], {}) and name not in e.Event.__dataclass_fields__
    }
    return f"t+{(event.occurred_at - START_AT) / 1000:g} {event.name} {kept}"


def _told(player: _Player, words: list[str]) -> bool:
    name, kind, *more = words
    news = player.world.robots[name].told[player.told_seen.get(name, 0) :]
    rows = [{str(value) for value in message.values()} | {message["type"]} for message in news]
    return any({kind, *(word.removeprefix("#") for word in more)} <= row for row in rows)


_ANSWERS: Final[dict[str, Callable[[_Player, list[str]], bool]]] = {
    "ack": lambda player, words: player.answer.get("type") == "ack" and "late" not in player.answer,
    "late": lambda player, words: player.answer.get("type") == "ack" and player.answer.get("late") is True,
    "refused": lambda player, words: _is_refused(player.answer) and player.answer["reason"] == words[0],
    "unchanged": lambda player, words: player.answer.get("changed") is False,
    "same": lambda player, words: player.answer == player.before,
    "told": _told,
}


def _is_refused(answer: Message) -> bool:
    return "refused" in (answer.get("type"), answer.get("status"))


# ---- words of a row ----


def _split(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Plain words, and those of the form name=value."""
    plain = [word for word in words if "=" not in word]
    return plain, {name: value for name, _, value in (word.partition("=") for word in words if "=" in word)}


def _robot(world: World, name: str) -> Robot:
    return world.stranger(name)


def _attempt(words: list[str]) -> tuple[list[str], int | None]:
    numbers = [int(word[1:]) for word in words if word.startswith("#")]
    return [word for word in words if not word.startswith("#")], numbers[0] if numbers else None


def _ms(seconds: str) -> int:
    return round(float(seconds) * 1000)


def _instant(world: World, text: str) -> int:
    """`+10` is ten seconds from now, `10` is t+10."""
    return (world.now if text.startswith("+") else START_AT) + _ms(text)


def _list(text: str) -> list[str]:
    return [word.replace(":", "=") for word in text.split("|") if word]


def _deadlines(world: World, options: dict[str, str]) -> e.Deadlines | None:
    """start=+10:dead, end=+10:cancel, run=5:alarm."""
    found: dict[str, Any] = {}
    for name in ("start", "run", "end"):
        if name in options:
            when, _, then = options.pop(name).partition(":")
            act: Any = then or "alarm"
            found[name] = (
                e.RunDeadline(ms=_ms(when), then=act)
                if name == "run"
                else e.InstantDeadline(at=_instant(world, when), then=act)
            )
    return e.Deadlines(**found) if found else None


def _submission(world: World, options: dict[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {"deadlines": _deadlines(world, options)}
    retry = {name: options.pop(name) for name in ("failures_max", "first", "factor", "max") if name in options}
    if retry:
        asked: dict[str, Any] = {_SECONDS.get(k, k): _number(k, v) for k, v in retry.items()}
        fields["retry"] = i.RetryAsked(**asked)
    if "policy" in options:
        wait = options.pop("wait", None)
        policy: Any = options.pop("policy")
        fields["on_lost"] = i.OnLostAsked(policy=policy, wait_ms=None if wait is None else _ms(wait))
    for name, value in options.items():
        match name:
            case "requirement" | "prefer":
                fields[name] = _list(value)
            case "not_before":
                fields[name] = _instant(world, value)
            case "cost":
                fields["slot_cost"] = int(value)
            case "priority" | "lost_max":
                fields[name] = int(value)
            case "lease" | "accept":
                fields[_SECONDS[name]] = _ms(value)
            case "pass":
                fields["passing"] = value
            case _:
                fields[name] = value
    return fields


def _number(name: str, value: str) -> int | float:
    if name in _SECONDS:
        return _ms(value)
    return float(value) if name == "factor" else int(value)


# ---- verbs ----

Words = list[str]
Options = dict[str, str]


def _submit(world: World, words: Words, options: Options) -> Message:
    command_id = options.pop("id", None)
    return world.submit(words[0], command_id, **_submission(world, options))


def _hello(world: World, words: Words, options: Options) -> Message:
    robot = _robot(world, words[0])
    held = [(task, int(number)) for task, number in (text.split("#") for text in _list(options.pop("holding", "")))]
    fields: dict[str, Any] = {}
    if "slots" in options:
        fields["slots"] = int(options["slots"])
    if "caps" in options:
        fields["capabilities"] = _list(options["caps"])
    if "fault" in options:
        fields["fault"] = m.FaultText(text=options["fault"])
    return robot.hello(*held, fresh="fresh" in words, **fields)


def _hello_and_ready(world: World, words: Words, options: Options) -> Message:
    answer = _hello(world, words, options)
    _robot(world, words[0]).ready()
    return answer


def _ready(world: World, words: Words, options: Options) -> Message:
    return _robot(world, words[0]).ready(int(words[1]) if len(words) > 1 else None)


def _accept(world: World, words: Words, options: Options) -> Message:
    (name, task), attempt = _attempt(words)
    return _robot(world, name).accept(task, attempt)


def _reject(world: World, words: Words, options: Options) -> Message:
    (name, task, *reason), attempt = _attempt(words)
    return _robot(world, name).reject(task, reason[0] if reason else "busy", attempt)


def _checkpoint(world: World, words: Words, options: Options) -> Message:
    (name, task, number), attempt = _attempt(words)
    return _robot(world, name).checkpoint(task, int(number), {"at": number}, attempt)


def _complete(world: World, words: Words, options: Options) -> Message:
    (name, task), attempt = _attempt(words)
    return _robot(world, name).complete(task, attempt, result=options.get("result"))


def _fail(world: World, words: Words, options: Options) -> Message:
    (name, task, *more), attempt = _attempt(words)
    after = {"retry_after_ms": _ms(options["after"])} if "after" in options else {}
    return _robot(world, name).fail(task, attempt, fatal="fatal" in more, **after)


def _stopped(world: World, words: Words, options: Options) -> Message:
    (name, task, why), attempt = _attempt(words)
    saved = options.get("checkpoint")
    value = {} if saved is None else {"checkpoint": m.CheckpointValue(number=int(saved), value={"at": saved})}
    return _robot(world, name).stopped(task, why, attempt, **value)


def _beat(world: World, words: Words, options: Options) -> Message:
    name, *tasks = words
    held = [(task, int(number)) for task, number in (text.split("#") for text in tasks)]
    _robot(world, name).beat(*held)
    return {}


def _update(world: World, words: Words, options: Options) -> Message:
    fields: dict[str, Any] = {}
    if "slots" in options:
        fields["slots"] = int(options["slots"])
    if "caps" in options:
        fields["capabilities"] = _list(options["caps"])
    return _robot(world, words[0]).send(m.Update, **fields)


def _plain(shape: Any, **fields: Any) -> Callable[[World, Words, Options], Message]:
    return lambda world, words, options: _robot(world, words[0]).send(shape, **fields)


def _task_verb(shape: Any) -> Callable[[World, Words, Options], Message]:
    def verb(world: World, words: Words, options: Options) -> Message:
        fields: dict[str, Any] = {"force": True} if "force" in words else {}
        reason = None if "unexplained" in words else "because"
        if shape is i.RedriveTask and options:
            fields["changed"] = _changes(world, options)
        return world.verb(shape, words[0], reason, **fields)

    return verb


def _changes(world: World, options: Options) -> e.TaskChanges:
    return e.TaskChanges(**_submission(world, options))


def _change(world: World, words: Words, options: Options) -> Message:
    return world.verb(i.ChangeTask, words[0], changed=_changes(world, options))


def _robot_verb(shape: Any) -> Callable[[World, Words, Options], Message]:
    return lambda world, words, options: world.do(shape, i.RobotVerb(robot=words[0], reason="because"))


def _scope(shape: Any) -> Callable[[World, Words, Options], Message]:
    def verb(world: World, words: Words, options: Options) -> Message:
        scope: Any = words[0]
        until = _instant(world, options["until"]) if "until" in options else None
        name = words[1] if len(words) > 1 else None
        return world.do(shape, i.ScopeBody(scope=scope, name=name, until=until, reason="because"))

    return verb


def _limit(world: World, words: Words, options: Options) -> Message:
    """limit kind weld running=2 rate=2.5 burst=10"""
    scope: Any = words[0]
    rate = options.get("rate")
    whole = {name: int(options[name]) for name in ("running", "burst") if name in options}
    body = i.LimitBody(scope=scope, name=words[1], rate_per_s=None if rate is None else float(rate), **whole)
    return world.do(i.SetLimit, body)


def _unlimit(world: World, words: Words, options: Options) -> Message:
    scope: Any = words[0]
    return world.do(i.RemoveLimit, i.LimitVerb(scope=scope, name=words[1]))


def _schedule(world: World, words: Words, options: Options) -> Message:
    """schedule ping every=60 cron=30_2_*_*_* zone=Europe/Berlin overlap=allow catch_up=2 jitter=5, then a submission"""
    name = words[0]
    fields: dict[str, Any] = {key: options.pop(key) for key in ("zone", "overlap") if key in options}
    if "cron" in options:
        fields["cron"] = options.pop("cron").replace("_", " ")
    if "catch_up" in options:
        fields["catch_up"] = int(options.pop("catch_up"))
    fields |= {f"{key}_ms": _ms(options.pop(key)) for key in ("every", "jitter") if key in options}
    task = i.Submission(task=name, kind=options.pop("kind", "weld"), **_submission(world, options))
    return world.do(i.SetSchedule, i.ScheduleBody(schedule=name, task=task, **fields))


def _schedule_verb(shape: Any) -> Callable[[World, Words, Options], Message]:
    return lambda world, words, options: world.do(shape, i.ScheduleVerb(schedule=words[0], reason="because"))


def _set(world: World, words: Words, options: Options) -> Message:
    values: dict[str, Any] = {name: int(value) if value.isdigit() else value for name, value in options.items()}
    return world.do(i.ConfigurePool, i.SettingsBody(settings=values))


def _again(world: World, words: Words, options: Options) -> Message:
    """The last message or command once more: a robot's with the next number, as the protocol says."""
    robot, sent = world.sent
    if robot is None:
        return world.redo(sent)
    if sent.type != "hello":
        robot.seq += 1
        sent.seq, sent.epoch = robot.seq, robot.epoch
    answer: Message = robot.deliver(sent)
    return answer


def _explain(world: World, words: Words, options: Options) -> Message:
    return world.verb(i.Explain, words[0])


def _keep(world: World, words: Words, options: Options) -> Message:
    world.keep(*(_robot(world, name) for name in words))
    return {}


def _silent(world: World, words: Words, options: Options) -> Message:
    for name in words:
        _robot(world, name).alive = False
    return {}


def _take_over(world: World, words: Words, options: Options) -> Message:
    world.take_over(float(options.get("gap", "0")))
    return {}


def _wait(world: World, words: Words, options: Options) -> Message:
    return {}


_VERBS: Final[dict[str, Callable[[World, Words, Options], Message]]] = {
    "submit": _submit,
    "hello": _hello,
    "robot": _hello_and_ready,
    "ready": _ready,
    "accept": _accept,
    "reject": _reject,
    "checkpoint": _checkpoint,
    "complete": _complete,
    "fail": _fail,
    "stopped": _stopped,
    "beat": _beat,
    "update": _update,
    "fault": _plain(m.Fault, text="jammed"),
    "recovered": _plain(m.Recovered),
    "bye": _plain(m.Bye),
    "cancel": _task_verb(i.CancelTask),
    "release": _task_verb(i.ReleaseTask),
    "resolve": _task_verb(i.ResolveTask),
    "redrive": _task_verb(i.RedriveTask),
    "discard": _task_verb(i.DiscardTask),
    "change": _change,
    "drain": _robot_verb(i.DrainRobot),
    "undrain": _robot_verb(i.UndrainRobot),
    "clear": _robot_verb(i.ClearRobot),
    "retire": _robot_verb(i.RetireRobot),
    "pause": _scope(i.Pause),
    "resume": _scope(i.Resume),
    "limit": _limit,
    "unlimit": _unlimit,
    "schedule": _schedule,
    "unschedule": _schedule_verb(i.DeleteSchedule),
    "pause_schedule": _schedule_verb(i.PauseSchedule),
    "resume_schedule": _schedule_verb(i.ResumeSchedule),
    "fire": _schedule_verb(i.FireSchedule),
    "set": _set,
    "again": _again,
    "explain": _explain,
    "keep": _keep,
    "silent": _silent,
    "take_over": _take_over,
    "wait": _wait,
}
