"""Awkward texts in every text field, awkward JSON as every body and payload: taken as they are, or refused.

Each text is put into some of the places in turn, so that every text is somewhere and every place meets many; with
FLEETLOG_FUZZ every text into every place.
"""

from __future__ import annotations

import functools
import json
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, TypeVar
from urllib.parse import quote

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from tests.fuzz.amount import FUZZ
from tests.fuzz.answers import check_closed, check_http, check_message, check_submitted
from tests.fuzz.awkward import Body, bodies, is_utf8, texts
from tests.fuzz.crew import POOL
from tests.fuzz.frames import EPOCH, MESSAGE, MINE, MY_ATTEMPT, SEQ, dump
from tests.fuzz.plain import Plain
from tests.fuzz.playing import READY, FuzzingRobot, session, submit_for
from tests.fuzz.product import Fuzzed, open_submit
from tests.support.fleet import CEILING_S

P = TypeVar("P")
IN_FLIGHT = 200
"""Messages that may wait for their answers."""
ELSEWHERE = "/v1/pools/hall-x"
"""A pool where nothing has to go on."""
HALL = f"/v1/pools/{POOL}"
sent: Counter[str] = Counter()


def some_of(places: Sequence[P], number: int) -> list[P]:
    """A few of the places, others for the next text; all of them when asked."""
    few = max(1, len(places) // 3)
    return list(places) if FUZZ else list(places[number % few :: few])


# ---- submissions ----


def tasks_with(text: str) -> list[dict[str, Any]]:
    """A task with `text` in each of its fields, one at a time."""
    fields: list[dict[str, Any]] = [
        {"payload": text},
        {"payload": {text: [text]}},
        {"labels": {"line": text}},
        {"labels": {text: "x"}},
        {"requirement": [text]},
        {"prefer": [text]},
        {"id": text},
        {"kind": text},
        {"target": text},
        {"limit_key": text},
        {"not_before": text},
        {"late": text},
        {"pass": text},
        {"on_lost": {"policy": text}},
        {"deadlines": {"start": {"at": text}}},
        {"deadlines": {"run": {"s": 1, "then": text}}},
        {text: 1},
        {"payload": 1, "priority": text},
    ]
    return [{"kind": "nobody", **field} for field in fields]


def in_submissions(fuzzed: Fuzzed) -> None:
    """On one stream: each is answered, what is accepted is stored as it was sent, what is refused is not stored."""
    asked: dict[str, dict[str, Any]] = {}
    with open_submit(fuzzed.url) as stream:

        def take_in() -> None:
            answer = check_submitted(stream.recv(timeout=CEILING_S), "a text in a submission")
            message = asked.pop(answer["of"])
            fuzzed.note(message, answer)
            sent[f"submission {answer['type']}"] += 1

        for number, text in enumerate(texts()):
            for task in some_of(tasks_with(text), number):
                if "id" not in task:
                    task = {**task, "id": f"s-{uuid.uuid4()}"}
                command = str(uuid.uuid4())
                message = {"type": "submit", "id": command, "pool": POOL, "tasks": [task]}
                asked[command] = message
                stream.send(json.dumps(message))
                if len(asked) > IN_FLIGHT:
                    take_in()
        while asked:
            take_in()
        for text in texts():  # in the message's own fields; an id that is none has no answer of its own
            for field in ("id", "pool", "type"):
                message = {"type": "submit", "id": str(uuid.uuid4()), "pool": POOL, "tasks": [{"kind": "nobody"}]}
                stream.send(json.dumps(message | {field: text}))
                check_submitted(stream.recv(timeout=CEILING_S), (field, text))
    fuzzed.unharmed()
    assert sent["submission accepted"]
    assert sent["submission refused"]


# ---- robots ----


def messages_with(text: Any) -> list[dict[str, Any]]:
    """A message with `text` in each of its fields, one at a time."""
    about = {"task": MINE, "attempt": MY_ATTEMPT}
    error = {"type": "E", "message": "m"}
    final: list[dict[str, Any]] = [
        {"type": "fail", **about, "class": "retryable", "error": error | {"message": text}},
        {"type": "complete", **about, "result": text},
    ]
    return [
        {"type": "fault", "text": text},
        {"type": "recovered"},
        {"type": "fault", "text": "x", "code": text},
        {"type": "recovered", "x": text},
        {"type": "accept", "task": text, "attempt": 1},
        {"type": "reject", **about, "reason": text},
        {"type": "heartbeat", "holding": [about | {"note": text}]},
        {"type": "heartbeat", "holding": [{"task": text, "attempt": 1}]},
        {"type": "update", "capabilities": [text]},
        {"type": "checkpoint", "task": text, "attempt": 1, "number": 1, "value": text},
        {"type": "complete", "task": text, "attempt": 1, "result": text},
        {"type": "stopped", **about, "why": text},
        {"type": "fail", **about, "class": text, "error": error},
        {"type": "fail", "task": text, "attempt": 1, "class": "fatal", "error": error | {"type": text, "detail": text}},
        {"type": text},
        {"type": "ready", "n": 8, "id": text},
        *final,
    ]


class Talker:
    """A robot that says one message after the other, over as many sessions as that takes."""

    def __init__(self, fuzzed: Fuzzed) -> None:
        self._fuzzed = fuzzed
        self._robot: FuzzingRobot | None = None
        self._socket: ClientConnection
        self._session = ExitStack()

    def say(self, messages: list[dict[str, Any] | bytes]) -> None:
        """Says them in a session where a task is running; takes in one answer for each, or the end of the session."""
        self._begin()
        assert self._robot is not None
        try:
            for message in messages:
                head = {"id": MESSAGE, "epoch": EPOCH, "seq": SEQ}
                raw = message if isinstance(message, bytes) else self._robot.filled({**head, **message})
                self._socket.send(raw, text=True)
                sent["robot"] += 1
            self._until_welcome(messages)
        except ConnectionClosed as closed:
            check_closed(closed, messages)
            self.leave()

    def _begin(self) -> None:
        if self._robot is not None:
            return
        self._robot = FuzzingRobot(self._fuzzed.url, POOL)
        submit_for(self._robot)
        self._socket = self._session.enter_context(session(self._fuzzed.url, POOL, self._robot.robot))
        self._until_welcome("hello")
        self._socket.send(self._robot.filled(READY), text=True)
        while self._robot.task == "ghost":
            self._robot.hear(check_message(self._socket.recv(timeout=CEILING_S), "assign"))
        accept = {"type": "accept", "id": MESSAGE, "epoch": EPOCH, "seq": SEQ, "task": MINE, "attempt": MY_ATTEMPT}
        self._socket.send(self._robot.filled(accept), text=True)

    def _until_welcome(self, about: Any) -> None:
        assert self._robot is not None
        holding = [] if self._robot.task == "ghost" else [{"task": self._robot.task, "attempt": 1, "started": True}]
        hello = self._robot.hello() | {"holding": holding}
        self._socket.send(dump(hello), text=True)
        while True:
            message = check_message(self._socket.recv(timeout=CEILING_S), about)
            self._robot.hear(message)
            if message.get("of") == hello["id"]:
                assert message["type"] == "welcome", (about, message)
                return

    def leave(self) -> None:
        """Goes; what it says next begins another session."""
        self._session.close()
        self._robot = None


def in_robots_messages(fuzzed: Fuzzed) -> None:
    """Each is answered, in a session that goes on; only too many refusals end it."""
    talker = Talker(fuzzed)
    for number, text in enumerate(texts()):
        talker.say(some_of(messages_with(text), number))
    talker.leave()
    for text in texts()[:: max(1, len(texts()) // 60)]:
        for changed in ({"agent": text}, {"capabilities": [text]}, {"fault": {"text": text}}, {"id": text}):
            robot = FuzzingRobot(fuzzed.url, POOL)
            with session(fuzzed.url, POOL, robot.robot) as socket:
                socket.send(dump(robot.hello() | changed), text=True)
                check_message(socket.recv(timeout=CEILING_S), changed)
                sent["hello"] += 1
    fuzzed.unharmed()


# ---- HTTP ----

PATHS = [
    ("GET", "/v1/pools/{}"),
    ("GET", "/v1/pools/hall-a/tasks/{}"),
    ("GET", "/v1/pools/{}/tasks/t-done/history"),
    ("POST", "/v1/pools/hall-a/tasks/{}/cancel"),
    ("GET", "/v1/pools/hall-a/robots/{}"),
    ("POST", "/v1/pools/hall-a/robots/{}/drain"),
    ("POST", "/v1/pools/hall-a/robots/{}/poll"),
    ("GET", "/v1/pools/hall-a/robots/{}/session"),
    ("GET", "/v1/pools/hall-a/targets/{}"),
    ("POST", "/v1/pools/hall-a/kinds/{}/resume"),
    ("PUT", "/v1/pools/hall-a/limits/kind/{}"),
    ("DELETE", "/v1/pools/hall-a/limits/{}/x"),
    ("GET", "/v1/pools/hall-a/schedules/{}/next"),
    ("GET", "/v1/bulk/{}"),
    ("GET", "/v1/problems/{}"),
    ("GET", "/{}"),
]
QUERIES = [
    ("/v1/tasks", "where"),
    ("/v1/tasks", "sort"),
    ("/v1/tasks", "cursor"),
    ("/v1/tasks", "after"),
    ("/v1/tasks", "limit"),
    ("/v1/tasks/count", "where"),
    ("/v1/robots", "where"),
    ("/v1/events", "where"),
    ("/v1/events", "types"),
    ("/v1/events", "from"),
    ("/v1/events", "cursor"),
    ("/v1/stream", "where"),
    ("/v1/stream", "types"),
    ("/v1/pools", "cursor"),
    ("/v1/pools/hall-a/stats", "to"),
    ("/v1/pools/hall-a/stats", "step_s"),
    ("/v1/pools/hall-a/tasks/t-done", "wait_s"),
]
BODIES: list[tuple[str, str, Any]] = [
    ("POST", "/v1/pools/hall-a/tasks/t-dead/redrive", lambda t: {"reason": t, "changed": {"priority": t}}),
    ("POST", "/v1/pools/hall-a/tasks/t-waiting/pause", lambda t: {"reason": t}),
    ("POST", "/v1/pools/hall-a/tasks/t-dead/resolve", lambda t: {"result": t}),
    ("PATCH", "/v1/pools/hall-a/tasks/t-waiting", lambda t: {"labels": {"line": t}, "requirement": [t]}),
    ("POST", f"{ELSEWHERE}/pause", lambda t: {"until": t}),
    ("POST", "/v1/pools", lambda t: {"pool": t}),
    ("POST", "/v1/pools", lambda t: {"pool": "hall-y", "settings": {t: 1}}),
    ("PATCH", ELSEWHERE, lambda t: {"settings": {"lease_s": t, "late": t}}),
    ("PUT", "/v1/pools/hall-a/schedules/s1", lambda t: {"cron": t, "zone": "UTC", "task": {"kind": "nobody"}}),
    ("PUT", "/v1/pools/hall-a/schedules/s2", lambda t: {"cron": "0 0 1 1 *", "zone": t, "task": {"kind": "nobody"}}),
    ("PUT", "/v1/pools/hall-a/schedules/s3", lambda t: {"cron": "0 0 1 1 *", "task": {"kind": "nobody", "payload": t}}),
    ("POST", "/v1/bulk", lambda t: {"verb": "pause", "filter": t, "dry_run": True, "reason": t}),
    ("POST", "/v1/bulk", lambda t: {"verb": "pause", "token": t, "reason": "x"}),
    ("POST", "/v1/pools/hall-a/robots/x1/poll", lambda t: {"session": t, "messages": [{"type": t}]}),
    ("POST", "/v1/clock/accept", lambda t: {"reason": t}),
]
HEADERS = [
    "Idempotency-Key",
    "traceparent",
    "X-Request-Id",
    "Last-Event-ID",
    "Authorization",
    "Origin",
    "Host",
    "Content-Type",
]


PLACES: list[tuple[str, Any]] = [
    *(("path", path) for path in PATHS),
    *(("query", query) for query in QUERIES),
    *(("body", body) for body in BODIES),
    *(("header", name) for name in HEADERS),
]


def in_requests(fuzzed: Fuzzed) -> None:
    """An answer, and every no is a problem with a word of the list."""
    plain = Plain(fuzzed.url)
    assert plain.ask("POST", f"{ELSEWHERE}/tasks", b'{"kind":"nobody"}')[0] == 201
    places = [functools.partial(ask_with, plain, place) for place in range(len(PLACES))]
    for number, text in enumerate(texts()):
        for ask in some_of(places, number):
            ask(text)
    plain.close()
    fuzzed.unharmed()


def ask_with(plain: Plain, place: int, text: str) -> None:
    """One request with `text` at the place of that number."""
    raw = text.encode("utf-8", "surrogatepass")
    sort, what = PLACES[place]
    body, headers = None, {}
    if sort == "path":
        method, path = what[0], what[1].format(quote(raw[:2000], safe=""))
    elif sort == "query":
        method, path = "GET", f"{what[0]}?{what[1]}={quote(raw[:4000], safe='')}"
    elif sort == "body":
        method, path, body = what[0], what[1], dump(what[2](text))
    else:
        method, path, body = "POST", f"{HALL}/tasks/t-waiting/resume", b"{}"
        if what == "Last-Event-ID":
            method, path, body = "GET", "/v1/stream", None
        headers = {what: raw.translate(None, b"\r\n\0").strip()[:2000]}
    status, told, content = plain.ask(method, path, body, headers)
    sent[f"http {status // 100}xx"] += 1
    check_http(status, told, content, (method, path, body, headers))


# ---- bodies ----


BODY_PLACES = ("request", "payload", "result", "frame", "submission")


def bodies_as(fuzzed: Fuzzed, place: str) -> None:
    """JSON by the letter is taken as a payload, unless it breaks a limit of ours; what is not JSON is refused."""
    talker, plain = Talker(fuzzed), Plain(fuzzed.url)
    for number, body in enumerate(bodies()):
        if place == "request":
            _as_requests(plain, body, number)
        elif place == "payload":
            _as_payload(fuzzed, plain, body)
        elif is_utf8_bytes(body.raw):
            _in_frames(fuzzed, talker, place, body)
        sent[f"body as {place}"] += 1
    talker.leave()
    plain.close()
    fuzzed.unharmed()


def is_utf8_bytes(raw: bytes) -> bool:
    """Whether it may stand in a frame of text."""
    return is_utf8(raw.decode("utf-8", "surrogateescape"))


def _as_requests(plain: Plain, body: Body, number: int) -> None:
    for method, path, _ in some_of(BODIES, number):
        status, headers, content = plain.ask(method, path, body.raw)
        check_http(status, headers, content, (method, path, body.name))


def _as_payload(fuzzed: Fuzzed, plain: Plain, body: Body) -> None:
    task = f"b-{uuid.uuid4()}"
    raw = b'{"kind":"nobody","id":"%b","payload":%b}' % (task.encode(), body.raw)
    status, headers, content = plain.ask("POST", f"{HALL}/tasks", raw)
    check_http(status, headers, content, body.name)
    if status == 201:
        assert body.expect != "reject", body
        fuzzed.accepted.payloads[POOL, task] = json.loads(body.raw)
        return
    fuzzed.accepted.refused.add((POOL, task))
    if body.expect == "accept":
        assert json.loads(content)["reason"] == "invalid_field", (body, content)


def _in_frames(fuzzed: Fuzzed, talker: Talker, place: str, body: Body) -> None:
    if place == "submission":
        with open_submit(fuzzed.url) as stream:
            head = b'{"type":"submit","id":"%b","pool":"hall-a","tasks":' % str(uuid.uuid4()).encode()
            for raw in (body.raw, head + body.raw + b"}", head + b'[{"kind":"nobody","payload":' + body.raw + b"}]}"):
                stream.send(raw, text=True)
                check_submitted(stream.recv(timeout=CEILING_S), body.name)
    elif place == "frame":
        talker.say([body.raw])
    else:
        begun: Any = {"type": "complete", "task": "ghost", "attempt": 1}
        raw = json.dumps(begun).encode()[:-1]
        talker.say([raw + b',"id":"x.1","epoch":1,"seq":1,"result":' + body.raw + b"}"])
