"""An owner without rules: it answers commands and reports as a script says, so that a gateway can be tested alone.

    owner = ScriptedOwner(log).start()
    owner.on_command = lambda command: {"status": "refused", "reason": "queue_full", "text": "full"}
    owner.say("hall-a", {"type": "stop", ...}, to=gateway.name, robot="r1", epoch=owner.epochs["hall-a", "r1"])

Without a script, submissions are accepted, hellos welcomed, and other reports acknowledged. What a script says to a
robot is for its newest epoch, or for `for_epoch` where the message has that.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from commands.inputs import Heartbeats, Report, decode_command, decode_report
from commands.outcomes import Outcome, encode_outcome
from streams.port import Fenced, Log, LogUnavailable, Output, Seat, SeatLost, Topic, partition_of

Message = dict[str, Any]
NOTHING: list[Message] = []


class ScriptedOwner:
    """Owns every partition of `log`; what it saw is in `commands`, `reports`, `heartbeats`, in order."""

    def __init__(self, log: Log) -> None:
        self.commands: list[Any] = []
        self.reports: list[Report] = []
        self.heartbeats: list[Heartbeats] = []
        self.epochs: dict[tuple[str, str], int] = {}
        self.gateways: dict[tuple[str, str], str] = {}
        self.on_command: Callable[[Any], Message | None] = accept_command
        self.on_report: Callable[[Report], list[Message]] = self.accept_report
        self._log = log
        self._epoch = itertools.count(1)
        self._sequences: dict[str, itertools.count[int]] = defaultdict(lambda: itertools.count(1))
        self._to_say: dict[int, list[Output]] = defaultdict(list)
        self._lock = threading.Lock()
        self._seats: dict[int, Seat] = {}
        self._threads: list[threading.Thread] = []
        self._ownership: Any = None

    def start(self) -> ScriptedOwner:
        """Takes every partition."""
        self._ownership = self._log.own("scripted", self._taken, lambda seat: None)
        return self

    def stop(self) -> None:
        """Leaves; the threads end."""
        self._ownership.close()
        for thread in self._threads:
            thread.join()

    def say(
        self,
        pool: str,
        message: Message,
        *,
        to: str,
        of: str | None = None,
        robot: str | None = None,
        epoch: int | None = None,
    ) -> None:
        """Writes one outcome by itself."""
        partition = partition_of(pool, self._log.partitions)
        with self._lock:
            self._to_say[partition].append(self._output(pool, message, to, of, robot, epoch))
        self._seats[partition].wake()

    def tell(self, pool: str, robot: str, message: Message) -> None:
        """Writes a message for the robot's current session."""
        key = (pool, robot)
        self.say(pool, message, to=self.gateways[key], robot=robot, epoch=self.epochs[key])

    def welcome(self, report: Report, **changed: Any) -> Message:
        """A new epoch and the welcome for a hello."""
        key = (report.pool, report.robot)
        self.epochs[key], self.gateways[key] = next(self._epoch), report.gateway
        return {
            "type": "welcome",
            "of": report.message.id,
            "epoch": self.epochs[key],
            "protocol": 1,
            "window_ms": 5000,
            "heartbeat_every_ms": 2500,
            "draining": False,
            "held": [],
            **changed,
        }

    def accept_report(self, report: Report) -> list[Message]:
        """Welcomes a hello, acknowledges everything else."""
        if report.message.type == "hello":
            return [self.welcome(report)]
        ack: Message = {"type": "ack", "of": report.message.id}
        if report.message.type == "accept":
            ack |= {"lease_ms": 15000, "stop_after_ms": 15000}
        if report.message.type == "bye":
            ack["closed"] = 1000
        return [ack]

    # ---- in the thread of a partition ----

    def _taken(self, seat: Seat) -> None:
        self._seats[seat.partition] = seat
        thread = threading.Thread(target=self._own, args=(seat,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _own(self, seat: Seat) -> None:
        while not seat.lost():
            try:
                self._own_once(seat)
            except SeatLost:
                return
            except (Fenced, LogUnavailable):
                time.sleep(0.02)

    def _own_once(self, seat: Seat) -> None:
        taken = seat.take_over()
        seat.start()
        reports_next, commands_next = taken.reports_next, taken.commands_next
        while True:
            fetched = seat.fetch(500, 1.0)
            outputs: list[Output] = []
            for record in fetched.reports:
                outputs += self._decide_report(decode_report(record.value))
                reports_next = record.offset + 1
            for record in fetched.commands:
                outputs += self._decide_command(decode_command(record.value))
                commands_next = record.offset + 1
            with self._lock:
                outputs += self._to_say.pop(seat.partition, [])
            if outputs or fetched.reports or fetched.commands:
                seat.commit(outputs, reports_next, commands_next)

    def _decide_command(self, command: Any) -> list[Output]:
        self.commands.append(command)
        message = self.on_command(command)
        if message is None:
            return []
        return [self._output(command.pool, message, command.reply_to, command.id, None, None)]

    def _decide_report(self, report: Report | Heartbeats) -> list[Output]:
        if isinstance(report, Heartbeats):
            self.heartbeats.append(report)
            return []
        self.reports.append(report)
        key = (report.pool, report.robot)
        outputs = []
        for message in self.on_report(report):
            epoch = message.pop("for_epoch", self.epochs.get(key))
            outputs.append(self._output(report.pool, message, report.gateway, None, report.robot, epoch))
        return outputs

    def _output(
        self, pool: str, message: Message, to: str, of: str | None, robot: str | None, epoch: int | None
    ) -> Output:
        outcome = Outcome(
            pool=pool, of=of, robot=robot, epoch=epoch, position=next(self._sequences[pool]), message=message
        )
        return Output(Topic.OUTCOMES, pool, encode_outcome(outcome), (("to", to.encode()),))


def accept_command(command: Any) -> Message:
    """Accepts anything, in the shape that owners answer."""
    body = command.body
    answer: Message = {"changed": True, "sequence": 1, "at": 1_700_000_000_000}
    if command.type == "submit_all":
        return {"status": "accepted", "answer": {"tasks": [_task(task.task) for task in body.tasks]}}
    if hasattr(body, "task"):
        answer |= _task(body.task)
    elif hasattr(body, "robot"):
        answer["robot"] = body.robot
    elif hasattr(body, "scope"):
        answer |= {"scope": body.scope, "name": body.name}
    else:
        answer["pool"] = command.pool
    return {"status": "accepted", "answer": answer}


def _task(task: str) -> Message:
    return {
        "task": task,
        "state": "WAITING",
        "attempt": 0,
        "sequence": 1,
        "at": 1_700_000_000_000,
        "changed": True,
    }
