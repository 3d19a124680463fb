"""Plays frames: as a robot over a WebSocket or by polls, and as a submitter. Every answer is looked at."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from commands.messages import PROTOCOL
from tests.fuzz.answers import CLOSED, check_closed, check_http, check_message, check_submitted, read
from tests.fuzz.frames import EPOCH, MESSAGE, MINE, MY_ATTEMPT, SEQ, Fields, dump
from tests.support.fleet import CEILING_S, until

_FILLED = {EPOCH, SEQ, MY_ATTEMPT}
READY = {"type": "ready", "id": MESSAGE, "epoch": EPOCH, "seq": SEQ, "n": 8}


class FuzzingRobot:
    """A robot that says hello as it should, and then what it is told to say."""

    def __init__(self, url: str, pool: str) -> None:
        self.url, self.pool, self.robot = url, pool, f"fuzz-{uuid.uuid4().hex[:12]}"
        self.boot, self._ids, self._seq = uuid.uuid4().hex[:12], itertools.count(), 0
        self.epoch, self.task, self.attempt = 0, "ghost", 1

    def hello(self) -> dict[str, Any]:
        """A hello that begins a new session, or goes on with the old one."""
        return {
            "type": "hello",
            "id": self.message_id(),
            "slots": 1024,  # many messages a second are allowed
            "capabilities": [self.robot],
            "holding": [],
        }

    def message_id(self) -> str:
        """One that was never used."""
        return f"{self.boot}.{next(self._ids)}"

    def filled(self, frame: Fields | bytes) -> bytes:
        """The frame as it is sent now."""
        return frame if isinstance(frame, bytes) else dump(self._fill(frame))

    def _fill(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._fill(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._fill(inner) for inner in value]
        if value == MINE:
            return self.task
        if value == MESSAGE:
            return self.message_id()
        if type(value) is not int or value not in _FILLED:
            return value
        self._seq += value == SEQ
        return {EPOCH: self.epoch, SEQ: self._seq, MY_ATTEMPT: self.attempt}[value]

    def hear(self, message: dict[str, Any]) -> None:
        """Takes in what it must know."""
        if message["type"] == "welcome":
            self.epoch, self._seq = message["epoch"], 0
        elif message["type"] == "assign":
            self.task, self.attempt = message["task"], message["attempt"]


def submit_for(robot: FuzzingRobot) -> None:
    """A task that nobody but this robot can do, so that its messages are about one of its own."""
    task = {"kind": "fuzz", "payload": {"for": robot.robot}, "requirement": [robot.robot], "labels": {"for": "fuzz"}}
    answer = httpx.post(f"{robot.url}/v1/pools/{robot.pool}/tasks", json=task, timeout=CEILING_S)
    assert answer.status_code == 201, answer.text


def play_on_websocket(url: str, pool: str, frames: Sequence[Fields | bytes], as_bytes: Sequence[bool] = ()) -> int:
    """Says hello, is ready, says all frames, says hello again: a welcome, or closed with a code of the list.

    Returns how many frames were sent. `as_bytes`: which frames go as binary ones.
    """
    robot = FuzzingRobot(url, pool)
    submit_for(robot)
    sent = 0
    with session(url, pool, robot.robot) as socket:
        try:
            _welcomed(socket, robot, frames)
            socket.send(robot.filled(READY), text=True)
            while robot.task == "ghost":
                robot.hear(check_message(socket.recv(timeout=CEILING_S), frames))
            for index, frame in enumerate(frames):
                binary = index < len(as_bytes) and as_bytes[index]
                socket.send(robot.filled(frame), text=not binary)
                sent += 1
            _welcomed(socket, robot, frames)
        except ConnectionClosed as closed:
            check_closed(closed, frames)
    return sent


def session(url: str, pool: str, robot: str) -> ClientConnection:
    """A connection for a robot, before its hello."""
    address = f"{url.replace('http', 'ws', 1)}/v1/pools/{pool}/robots/{robot}/session"
    return connect(
        address, subprotocols=[Subprotocol(PROTOCOL)], compression=None, max_size=2**21, open_timeout=CEILING_S
    )


def _welcomed(socket: ClientConnection, robot: FuzzingRobot, about: Any) -> None:
    hello = robot.hello()
    socket.send(dump(hello), text=True)
    while True:
        message = check_message(socket.recv(timeout=CEILING_S), about)
        robot.hear(message)
        if message.get("of") == hello["id"]:
            assert message["type"] == "welcome", (about, message)
            return


def play_by_polls(client: httpx.Client, pool: str, frames: Sequence[Fields | bytes], changed: Fields) -> int:
    """The same by polls, ten frames each; `changed` are fields of the polls that are as they should not be."""
    robot = FuzzingRobot(str(client.base_url), pool)
    submit_for(robot)
    begun = str(uuid.uuid4())
    _poll(client, robot, {"session": begun, "wait_ms": 1000}, [dump(robot.hello())])

    def polled(enough: Callable[[], bool]) -> bool:
        _poll(client, robot, {"session": begun, "wait_ms": 100}, [])
        return enough()

    until(lambda: polled(lambda: robot.epoch > 0), "a welcome")
    _poll(client, robot, {"session": begun}, [robot.filled(READY)])
    until(lambda: polled(lambda: robot.task != "ghost"), "an assignment")
    _poll(client, robot, {"session": begun} | changed, [])
    for at in range(0, len(frames), 10):
        texts = [robot.filled(frame) for frame in frames[at : at + 10]]
        _poll(client, robot, {"session": begun}, texts)
    for _ in range(3):
        _poll(client, robot, {"session": begun, "wait_ms": 1000}, [])
    return len(frames)


def _poll(client: httpx.Client, robot: FuzzingRobot, fields: Fields, messages: list[bytes]) -> None:
    body = dump({"seen": 0, **fields})[:-1] + b',"messages":[' + b",".join(messages) + b"]}"
    answer = client.post(
        f"/v1/pools/{robot.pool}/robots/{robot.robot}/poll", content=body, headers={"Content-Type": "application/json"}
    )
    check_http(answer.status_code, answer.headers, answer.content, body)
    if answer.status_code == 200:
        told = read(answer.content)
        for message in told["messages"]:
            robot.hear(check_message(json.dumps(message), body))
        assert told.get("closed", 1000) in CLOSED, body


def play_on_submit(socket: ClientConnection, frames: Sequence[Fields | bytes]) -> list[tuple[bytes, dict[str, Any]]]:
    """Sends all frames, then takes in one answer for each. Returns (frame, answer), in any order of answers."""
    sent = [frame if isinstance(frame, bytes) else dump(frame) for frame in frames]
    sent = [frame for frame in sent if _is_text(frame)]
    for frame in sent:
        socket.send(frame, text=True)
    answers = [check_submitted(socket.recv(timeout=CEILING_S), frames) for _ in sent]
    by_id = {answer["of"]: answer for answer in answers if answer["of"] is not None}
    found = []
    for frame in sent:
        try:
            asked = json.loads(frame)
        except (ValueError, RecursionError):
            continue
        if isinstance(asked, dict) and isinstance(asked.get("id"), str) and asked["id"] in by_id:
            found.append((frame, by_id[asked["id"]]))
    return found


def _is_text(frame: bytes) -> bool:
    """A frame of text is UTF-8; another one ends the connection (test_what_is_no_message_ends_the_connection)."""
    try:
        frame.decode()
    except UnicodeDecodeError:
        return False
    return True
