"""Several devices behind one controller: each is a robot, by long polling, with the standard library alone.

    python examples/plc_gateway.py lift-1 lift-2 lift-3 &
    fleetlog submit move --payload '{"to": 40}' --wait

As in a PLC there is a scan cycle: every 20 ms each device takes one step of its movement, or none when its lease can
no longer be trusted. Beside it one thread a device talks to Fleetlog: a poll brings a heartbeat and reports, waits for
news at most half a heartbeat window, and is followed by the next one.

The rules of a robot and where they are: hello names what is held (hello), final reports first and then ready
(messages), nothing starts before the ack of accept (on_ack), the own deadline (scan), repeats after 5 s (messages).
"""

import json
import os
import random
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from typing import Any

GATEWAY = os.environ.get("FLEETLOG_GATEWAY", "http://127.0.0.1:8780")
POOL = os.environ.get("FLEETLOG_POOL", "default")
TOKEN = os.environ.get("FLEETLOG_TOKEN")
SCAN_S = 0.02
RESEND_AFTER_S = 5.0
DEADLINE_SHARE = 0.95
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
Message = dict[str, Any]


def now() -> float:
    """Seconds by the clock that also counts while the machine sleeps."""
    return time.clock_gettime(CLOCK)


class Device:
    """A lift: it moves to a position, one unit a scan. Everything below is behind its lock."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.position = 0
        self.lock = threading.Lock()
        self.boot, self.counter = uuid.uuid4().hex[:12], 0
        self.session, self.epoch, self.seq, self.seen = "", 0, 0, 0
        self.heartbeat_s, self.tries, self.not_before = 1.0, 0, 0.0
        self.pending: dict[str, Message] = {}  # without an answer: body, first_sent_at, sent_at, not_before
        self.beats: dict[str, tuple[float, set[tuple[str, int]]]] = {}
        self.assign: Message | None = None  # the attempt held; `phase` accepting or running
        self.phase, self.told, self.renewed_at, self.stop_after_s = "", "", 0.0, None
        self.leaving = self.said_bye = self.over = False

    # ---- the scan cycle ----

    def scan(self) -> None:
        """One step of the movement, if this device may still move."""
        with self.lock:
            if self.phase != "running" or self.assign is None:
                return
            if self.stop_after_s is not None and now() >= self.renewed_at + DEADLINE_SHARE * self.stop_after_s:
                self.told = self.told or "own_deadline"
            if self.told:
                self.report("stopped", why=self.told)
                return
            goal = self.assign["payload"]["to"]
            self.position += (goal > self.position) - (goal < self.position)
            if self.position == goal:
                self.report("complete", result={"device": self.name, "position": self.position})

    def report(self, kind: str, **fields: Any) -> None:
        """The final report about the attempt held; heartbeats go on naming it until its ack."""
        assert self.assign is not None
        self.say(kind, task=self.assign["task"], attempt=self.assign["attempt"], **fields)
        self.assign, self.phase, self.told = None, "", ""

    # ---- saying things ----

    def new_id(self) -> str:
        """An id that no message of this program had."""
        self.counter += 1
        return f"{self.boot}.{self.counter}"

    def say(self, kind: str, **fields: Any) -> None:
        """Send this with the next poll, and again until it is answered."""
        body = {"type": kind, "id": self.new_id(), **fields}
        if kind == "ready":  # only the newest counts
            self.pending = {i: m for i, m in self.pending.items() if m["body"]["type"] != "ready"}
        self.pending[body["id"]] = {"body": body, "first_sent_at": 0.0, "sent_at": 0.0, "not_before": 0.0}

    def held(self) -> list[tuple[str, int, bool]]:
        """Every attempt whose final report has no ack yet, and whether it has started."""
        reports = [m["body"] for m in self.pending.values() if m["body"]["type"] in ("complete", "fail", "stopped")]
        held = [(report["task"], report["attempt"], True) for report in reports]
        if self.assign is not None:
            held.append((self.assign["task"], self.assign["attempt"], self.phase == "running"))
        return held

    def numbered(self, body: Message) -> Message:
        """The message with epoch and number of the session."""
        self.seq += 1
        return {**body, "epoch": self.epoch, "seq": self.seq}

    def messages(self) -> list[Message]:
        """A heartbeat, then what was never sent or has no answer for 5 s: final reports first."""
        beat_id = self.new_id()
        named = [(task, attempt) for task, attempt, started in self.held() if started]
        self.beats = dict([*self.beats.items(), (beat_id, (now(), set(named)))][-16:])
        holding = [{"task": task, "attempt": attempt} for task, attempt in named]
        out = [self.numbered({"type": "heartbeat", "id": beat_id, "holding": holding})]
        final_first = sorted(
            self.pending.values(), key=lambda m: m["body"]["type"] not in ("complete", "fail", "stopped")
        )
        for message in final_first:
            at = now()
            if at >= message["not_before"] and (not message["sent_at"] or at >= message["sent_at"] + RESEND_AFTER_S):
                message["sent_at"] = at
                message["first_sent_at"] = message["first_sent_at"] or at
                out.append(self.numbered(message["body"]))
        return out

    def poll(self) -> Message:
        """The next poll: hello alone where there is no session."""
        with self.lock:
            if not self.session:
                self.session, self.seen, self.epoch = str(uuid.uuid4()), 0, 0
                holding = [{"task": t, "attempt": a, "started": started} for t, a, started in self.held()]
                hello = {
                    "type": "hello",
                    "id": self.new_id(),
                    "slots": 1,
                    "capabilities": ["lift", "kind:move"],
                    "holding": holding,
                }
                return {"session": self.session, "messages": [hello], "seen": 0, "wait_ms": 1000}
            if self.leaving and not self.held() and self.epoch and not self.said_bye:
                self.said_bye = True
                self.say("bye")
            said = self.messages() if self.epoch else []
            return {"session": self.session, "messages": said, "seen": self.seen, "wait_ms": 25_000}

    # ---- hearing things ----

    def hear(self, message: Message) -> None:
        """One message of the gateway; what this device does not know is passed over."""
        handler = getattr(self, f"on_{message['type']}", None)
        if handler is not None:
            handler(message)

    def on_welcome(self, welcome: Message) -> None:
        """The session begins."""
        self.epoch, self.seq, self.tries = welcome["epoch"], 0, 0
        self.heartbeat_s = welcome["heartbeat_every_ms"] / 1000
        self.beats.clear()
        for message in self.pending.values():
            message["sent_at"] = message["not_before"] = 0.0
        for verdict in welcome["held"]:
            if verdict["verdict"] == "stop":
                self.on_stop(verdict)
        self.say("ready", n=0 if self.leaving else 1)

    def on_assign(self, assign: Message) -> None:
        """A task: accept it if there is a machine for it."""
        key = {"task": assign["task"], "attempt": assign["attempt"]}
        answered = [m for m in self.pending.values() if key.items() <= m["body"].items()]
        if answered:  # a repeat gets the same answer
            answered[0]["sent_at"] = 0.0
        elif self.assign is not None and key.items() <= self.assign.items():
            self.say("accept", **key)
        elif self.assign is not None or self.leaving:
            self.say("reject", **key, reason="busy", text="a lift does one thing at a time")
        elif assign["kind"] != "move" or not isinstance((assign.get("payload") or {}).get("to"), int):
            self.say("reject", **key, reason="cannot", text='a lift does move with {"to": whole number}')
        else:
            self.assign, self.phase, self.told = assign, "accepting", ""
            self.say("accept", **key)

    def on_ack(self, ack: Message) -> None:
        """A message is in the log: an accept starts the work."""
        message = self.pending.pop(ack["of"], None)
        if message is None:
            return
        if message["body"]["type"] == "accept" and self.phase == "accepting":
            stop_after_ms = ack.get("stop_after_ms")
            self.stop_after_s = None if stop_after_ms is None else stop_after_ms / 1000
            self.renewed_at, self.phase = message["first_sent_at"], "running"
        self.over = self.over or message["body"]["type"] == "bye"

    def on_refused(self, refused: Message) -> None:
        """A message is not taken: send it again later, or give it up."""
        message = self.pending.get(refused["of"] or "")
        if refused["reason"] in ("no_session", "hello_first"):
            self.session = ""
        elif message is not None and refused["retry"]:
            message["sent_at"], message["not_before"] = 0.0, now() + refused.get("retry_after_ms", 1000) / 1000
        elif message is not None:
            del self.pending[refused["of"]]
            if message["body"]["type"] == "accept" and self.phase == "accepting":
                self.assign, self.phase = None, ""
        elif not self.epoch and not refused["retry"]:
            raise SystemExit(f"{self.name}: {refused['reason']}: {refused['text']}")

    def on_heartbeat_ack(self, ack: Message) -> None:
        """The lease goes on from the sending of that heartbeat."""
        sent_at, named = self.beats.pop(ack["of"], (0.0, set()))
        if self.assign is not None and (self.assign["task"], self.assign["attempt"]) in named:
            self.renewed_at = max(self.renewed_at, sent_at)
        self.heartbeat_s = ack["heartbeat_every_ms"] / 1000
        for notice in ack["stop"]:
            self.on_stop(notice)
        for notice in ack["cancel"]:
            self.on_cancel(notice)

    def on_stop(self, notice: Message) -> None:
        """The lease is over: the machine stops at once."""
        if self.assign is not None and (notice["task"], notice["attempt"]) == (
            self.assign["task"],
            self.assign["attempt"],
        ):
            self.told = "stop"

    def on_cancel(self, notice: Message) -> None:
        """Nobody wants the task any more."""
        if self.assign is not None and (notice["task"], notice["attempt"]) == (
            self.assign["task"],
            self.assign["attempt"],
        ):
            self.told = self.told or "cancel"

    def on_moved(self, moved: Message) -> None:
        """The gateway goes away: come again."""
        self.session, self.not_before = "", now() + moved["after_ms"] / 1000

    def on_superseded(self, superseded: Message) -> None:
        """Another program has this robot's id."""
        raise SystemExit(f"{self.name}: a newer session took over ({superseded['reason']})")

    # ---- the thread that talks ----

    def talk(self) -> None:
        """Poll until bye is answered, or the gateway wants this device no more."""
        try:
            while not self.over:
                self.exchange()
        finally:
            self.over = True

    def exchange(self) -> None:
        """One poll and its answer."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {TOKEN}"} if TOKEN else {})
        url = f"{GATEWAY}/v1/pools/{POOL}/robots/{self.name}/poll"
        request = urllib.request.Request(url, json.dumps(self.poll()).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=self.heartbeat_s + 5) as response:
                answer = json.loads(response.read())
        except urllib.error.HTTPError as refused:
            problem = json.loads(refused.read() or b"{}")
            if refused.code in (410, 421):
                self.session = ""
            elif refused.code < 500 and refused.code != 429:
                raise SystemExit(f"{self.name}: {problem.get('detail', refused)}") from None
            self.pause()
            return
        except (OSError, ValueError):
            self.pause()  # nobody answers, or only half: the session goes on, messages come again
            return
        with self.lock:
            for message in answer["messages"]:
                self.hear(message)
            self.seen = answer["cursor"]
            closed = answer.get("closed")
            if closed in (4001, 4002, 4003, 4004):
                raise SystemExit(f"{self.name}: closed with {closed}: {answer['reason']}")
            if closed is not None:
                self.session, self.over = "", self.said_bye
                self.not_before = max(self.not_before, now() + 60 if closed == 4006 else 0.0)
        if not self.session and not self.over:
            self.pause()

    def pause(self) -> None:
        """A random time up to min(30 s, 0.5 s x 2^k), never before what the gateway said."""
        time.sleep(max(self.not_before - now(), random.uniform(0, min(30, 0.5 * 2**self.tries))))
        self.tries = min(self.tries + 1, 6)

    def leave(self) -> None:
        """Take nothing new; what runs may end."""
        with self.lock:
            self.leaving = True
            self.say("ready", n=0)


def main(names: list[str]) -> None:
    """The scan cycle over all devices, until SIGTERM or Ctrl-C has been followed by everybody's bye."""
    devices = [Device(name) for name in names]
    signals: list[int] = []

    def on_signal(number: int, _: object) -> None:
        if signals:
            os._exit(128 + number)
        signals.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    for device in devices:
        threading.Thread(target=device.talk, name=device.name, daemon=True).start()
    while not all(device.over for device in devices):
        for device in devices:
            if signals and not device.leaving:
                device.leave()
            device.scan()
        time.sleep(SCAN_S)


if __name__ == "__main__":
    main(sys.argv[1:] or ["lift-1", "lift-2"])
