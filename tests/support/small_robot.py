"""A robot of one loop by long polling, with the standard library alone, that breaks a rule when it is asked to.

    python small_robot.py GATEWAY POOL ROBOT [RULE]

It does the kind `work` of the conformance suite, one task at a time.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
import uuid
from typing import Any

ENDING = (4001, 4002, 4003, 4004)


class SmallRobot:
    """`breaks`: "no-heartbeats", "starts-early", "deaf", "comes-back", "one-number", "crashes", "nonsense", or ""."""

    def __init__(self, gateway: str, pool: str, robot: str, breaks: str) -> None:
        self._url = f"{gateway}/v1/pools/{pool}/robots/{robot}/poll"
        self._breaks = breaks
        self._boot, self._count = uuid.uuid4().hex[:12], 0
        self._held: dict[str, Any] | None = None
        self._ends_at: float | None = None
        self._accept: dict[str, Any] = {}
        self._final: str | None = None

    def run(self) -> None:
        """Session after session, until one says that it must not come back."""
        while True:
            try:
                closed = self._serve()
            except urllib.error.HTTPError as refused:
                if refused.code in (400, 401, 403, 404):
                    sys.exit(f"refused: {refused.read().decode()}")
                closed = 0
            except OSError:
                closed = 0
            if closed in ENDING and self._breaks != "comes-back":
                sys.exit(f"closed with {closed}")
            time.sleep(0.1)

    def _serve(self) -> int:
        """One session; the code that it was closed with."""
        session, seen, seq = str(uuid.uuid4()), 0, 0
        say = [self._message("hello", slots=1, capabilities=["kind:work"], holding=self._holding(started=True))]
        epoch, every_s = 0, 0.5
        while True:
            for message in say if epoch else []:
                seq += self._breaks != "one-number" or seq == 0
                message["epoch"], message["seq"] = epoch, seq
            body = {"session": session, "messages": say, "seen": seen, "wait_ms": int(every_s * 1000)}
            request = urllib.request.Request(self._url, json.dumps(body).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answered:
                answer = json.load(answered)
            if "closed" in answer:
                return int(answer["closed"])
            seen, say = answer["cursor"], []
            for told in answer["messages"]:
                if told["type"] == "welcome":
                    epoch, every_s = told["epoch"], told["heartbeat_every_ms"] / 2000
                    say.append(self._message("ready", n=1))
                else:
                    say += self._heard(told)
            if epoch:
                say += self._done() + self._heartbeat()

    def _message(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._count += 1
        return {"type": kind, "id": f"{self._boot}.{self._count}", **fields}

    def _about(self) -> dict[str, Any]:
        assert self._held is not None
        return {"task": self._held["task"], "attempt": self._held["attempt"]}

    def _holding(self, **more: Any) -> list[dict[str, Any]]:
        return [] if self._held is None else [{**self._about(), **more}]

    def _heartbeat(self) -> list[dict[str, Any]]:
        if self._breaks == "no-heartbeats":
            return []
        if self._breaks == "nonsense":
            return [self._message("heartbeat", holding="nothing")]
        return [self._message("heartbeat", holding=self._holding())]

    def _heard(self, told: dict[str, Any]) -> list[dict[str, Any]]:
        if told["type"] == "assign":
            if self._breaks == "crashes":
                sys.exit("no gripper")
            if self._held is not None and self._about() == {"task": told["task"], "attempt": told["attempt"]}:
                return [self._accept]
            if self._held is not None:
                about = {"task": told["task"], "attempt": told["attempt"]}
                return [self._message("reject", **about, reason="busy")]
            self._held = told
            self._accept = self._message("accept", **self._about())
            if self._breaks == "starts-early":
                self._ends_at = time.monotonic()
            return [self._accept]
        if told["type"] == "ack" and told["of"] == self._accept.get("id") and self._held is not None:
            self._ends_at = time.monotonic() + self._held["payload"]["ms"] / 1000
        elif told["type"] == "ack" and told["of"] == self._final:
            self._held = None
        elif told["type"] in ("cancel", "stop") and self._held is not None and self._breaks != "deaf":
            return self._report("stopped", why=told["type"])
        return []

    def _done(self) -> list[dict[str, Any]]:
        if self._ends_at is None or time.monotonic() < self._ends_at:
            return []
        return self._report("complete", result={"done": True})

    def _report(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        self._ends_at = None
        report = self._message(kind, **self._about(), **fields)
        self._final = report["id"]
        return [report]


if __name__ == "__main__":
    SmallRobot(sys.argv[1], sys.argv[2], sys.argv[3], "".join(sys.argv[4:])).run()
