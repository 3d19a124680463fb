"""Where the rows for gateways are played: a gateway under test, and for each play robots and tasks of its own.

All plays share one pool. They do not meet, because the robots of each have a capability that its tasks require.
"""

from __future__ import annotations

import itertools
import uuid
from contextlib import ExitStack, suppress
from functools import cached_property
from typing import Any, Final, Self

import httpx

from commands.reasons import REASONS
from robot_gateway.conformance.checking import Message, NotReady, Unreachable, brief, must, until
from robot_gateway.conformance.raw_robot import PollingRobot, RawRobot, WebSocketRobot
from robot_gateway.sdk import Client, FleetlogError
from robot_gateway.sdk.client import TaskHandle

Fields = dict[str, Any]

TRANSPORTS: Final[dict[str, type[RawRobot]]] = {"websocket": WebSocketRobot, "polling": PollingRobot}
WINDOW_S: Final = 60
"""Long, because these robots beat only when a row says so."""
SHORT_WINDOW_S: Final = 1
LEASE_MS: Final = 180_000
TASK: Final[dict[str, Any]] = {"lease_s": 180, "accept_s": 180, "on_lost": "never"}
"""How the tasks of the plays are submitted."""
OVER: Final = "the play is over"


class GatewayUnderTest:
    """A gateway at `url`. `token`: an operator's; `robot_token`: one that may open sessions of robots `conformance-*`.

    `pool` and `pool`-short are made where they are missing. `patience_s`: how long is waited for what must come.
    """

    def __init__(
        self,
        url: str,
        *,
        pool: str = "conformance",
        token: str | None = None,
        robot_token: str | None = None,
        patience_s: float = 60.0,
    ) -> None:
        self.url = url.rstrip("/")
        self.pool, self.short_pool = pool, f"{pool}-short"
        self.robot_token = robot_token or token
        self.patience_s = patience_s
        self.client = Client(self.url, pool=pool, token=token, retry_for_s=patience_s)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.http = httpx.Client(base_url=self.url, headers=headers, timeout=patience_s)
        self._run = uuid.uuid4().hex[:6]
        self._numbers = itertools.count(1)

    def prepare(self) -> Self:
        """Makes the pools, or finds them as they have to be. Raises NotReady."""
        try:
            self._prepare(self.pool, WINDOW_S, LEASE_MS // 1000)
            self._prepare(self.short_pool, SHORT_WINDOW_S, 60)
        except httpx.TransportError as failed:
            raise Unreachable(
                f"no gateway answers at {self.url} ({_short(failed)}): "
                "start one with `fleetlog up`, or correct the address."
            ) from None
        return self

    def _prepare(self, pool: str, window_s: int, lease_s: int) -> None:
        settings = {"window_s": window_s, "lease_s": lease_s}
        made = self.http.post("/v1/pools", json={"pool": pool, "settings": settings})
        if made.status_code == 201:
            return
        how = f"`fleetlog pool create {pool} window_s={window_s} lease_s={lease_s}`"
        if made.status_code != 200:
            told = _problem(made)
            if told["reason"] is None:
                raise Unreachable(
                    f"what answers at {self.url} is no Fleetlog gateway ({told['detail']}): correct the address."
                )
            raise NotReady(
                f"the pool {pool} cannot be made ({told['detail']} [{told['reason']}]): let an operator run {how}, "
                "and name an operator's token with --token-file."
            )
        found = self.http.get(f"/v1/pools/{pool}")
        window = _json(found).get("settings", {}).get("window_s") if found.is_success else None
        if window is not None and float(window) != window_s:
            raise NotReady(f"the pool {pool} has windows of {window} s: name another with --pool, or run {how}.")

    def next_name(self) -> str:
        """A name that no play had, in no run."""
        return f"{self._run}-{next(self._numbers)}"

    def close(self) -> None:
        """Ends the connections."""
        self.client.close()
        self.http.close()


class Scene:
    """One play over one transport. What it started ends with it: robots are retired, tasks cancelled."""

    def __init__(self, gateway: GatewayUnderTest, transport: str) -> None:
        self.gateway = gateway
        self.transport = transport
        self.name = gateway.next_name()
        self.pool = gateway.pool
        self.client = gateway.client
        self.patience_s = gateway.patience_s
        self._capability = f"scene-{self.name}"
        self._tasks: list[str] = []
        self._robots: dict[str, list[RawRobot]] = {}

    # ---- robots ----

    def enter(self, robot: str = "r1", *, short_windows: bool = False) -> RawRobot:
        """A robot before its hello; the same name again is the same robot in a further program."""
        pool = self.gateway.short_pool if short_windows else self.pool
        kind = TRANSPORTS[self.transport]
        made = kind(self.gateway.url, pool, self.robot_id(robot), self.gateway.robot_token, self.patience_s)
        made.capabilities = (self._capability,)
        self._robots.setdefault(f"/v1/pools/{pool}/robots/{made.robot}", []).append(made)
        return made

    @cached_property
    def robot(self) -> RawRobot:
        """Robot r1, welcome, with room for two tasks."""
        robot = self.enter()
        robot.hello()
        told = robot.ask("ready", n=2)
        must(told["type"] == "ack", "ack to ready", told)
        return robot

    def robot_id(self, robot: str = "r1") -> str:
        """The id of a robot of this play."""
        return f"conformance-{self.name}-{robot}"

    def robot_state(self) -> str:
        """The state of r1, as the gateway shows it."""
        shown = self.gateway.http.get(f"/v1/pools/{self.pool}/robots/{self.robot_id()}")
        return str(_json(shown).get("state"))

    def expect_state(self, state: str) -> None:
        """Waits until r1 is shown in that state. Raises Broken."""
        until(lambda: self.robot_state() == state, f"the robot in {state}", self.patience_s, self.robot_state)

    def operate(self, verb: str, reason: str) -> None:
        """An operator does something to r1. Raises Broken where that is refused."""
        path = f"/v1/pools/{self.pool}/robots/{self.robot_id()}/{verb}"
        told = self.gateway.http.post(path, json={"reason": reason})
        must(told.is_success, f"HTTP 200 to {verb}", f"HTTP {told.status_code} {brief(told.text)}")

    # ---- tasks ----

    def submit(self, payload: Any = None, **options: Any) -> TaskHandle:
        """A task that only robots of this play can do."""
        asked: Any = {"requirement": [self._capability], **TASK, **options}
        handle = self.client.submit("weld", payload, **asked)
        self._tasks.append(handle.id)
        return handle

    def assigned(self) -> Fields:
        """A task for the robot, assigned and not accepted: {task, attempt}."""
        robot = self.robot
        self.submit({"seam": 3})
        return attempt_of(robot.expect("assign"))

    def running(self) -> Fields:
        """The same, accepted."""
        about = self.assigned()
        told = self.robot.ask("accept", **about)
        must(told["type"] == "ack", "ack to accept", told)
        return about

    def events(self, kind: str, after: str | None = None) -> list[Fields]:
        """The events of this type of this play's tasks, at least up to the position `after`."""
        if after is not None and self._tasks:
            self.client.task(self._tasks[0], after=after)
        found = [event for task in self._tasks for event in self.client.history(task)]
        return [event for event in found if event["type"].startswith(f"{kind}.")]

    def expect_event(self, kind: str) -> Message:
        """Waits for exactly one event of this type. Raises Broken."""
        found = until(lambda: self.events(kind), f"{kind} in the history", self.patience_s)
        must(len(found) == 1, f"one {kind}", found)
        return Message(found[0])

    # ---- the end ----

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as parts:
            for path, robots in self._robots.items():
                parts.callback(self._retire, path)
                for robot in robots:
                    parts.callback(robot.leave)
            for task in self._tasks:
                self._drop(task)

    def _drop(self, task: str) -> None:
        """Whatever state it is in: nothing of it waits, runs, holds a slot, or lies among the dead letters."""
        with suppress(FleetlogError):
            self.client.cancel(task, reason=OVER)
        with suppress(FleetlogError):
            self.client.release(task, reason=OVER, force=True)
        with suppress(FleetlogError):
            self.client.discard(task, reason=OVER)

    def _retire(self, path: str) -> None:
        with suppress(httpx.TransportError):
            self.gateway.http.post(f"{path}/retire", json={"reason": OVER})


def attempt_of(message: Message) -> Fields:
    """What names the attempt in a message."""
    return {"task": message["task"], "attempt": message["attempt"]}


def _problem(response: httpx.Response) -> dict[str, str | None]:
    told = _json(response)
    reason = told.get("reason")
    known = isinstance(reason, str) and reason in REASONS
    detail = str(told.get("detail", "")).rstrip(".") if known else f"HTTP {response.status_code}"
    return {"reason": reason if known else None, "detail": detail}


def _json(response: httpx.Response) -> dict[str, Any]:
    try:
        value = response.json()
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _short(failed: httpx.TransportError) -> str:
    return str(failed).rpartition("] ")[2].lower() or type(failed).__name__
