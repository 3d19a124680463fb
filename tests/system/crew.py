"""What works on the product while it is being killed: robots and a submitter in processes of their own.

They write what they know to files, so that a judge can compare it with the log: robots each start and end of work,
the submitter each acknowledged task.
"""

import json
import multiprocessing
import os
import random
import time
from functools import partial
from pathlib import Path
from typing import Any

WORK_S = (0.02, 0.2)
TARGETS = 40


def be_robot(url: str, name: str, folder: str) -> None:
    """A robot of eight slots that works for a moment on a target and writes down when."""
    from fleetlog import Robot

    record = _notebook(Path(folder, f"{name}.jsonl"))
    robot = Robot(name, pool="default", gateway=url, slots=8)

    @robot.task("work")
    def work(context: Any, payload: Any) -> dict[str, Any]:
        began = time.monotonic()
        time.sleep(random.uniform(*WORK_S))
        row = [context.task, context.attempt, payload["target"], began, time.monotonic()]
        record.write(json.dumps(row) + "\n")
        return {"by": name}

    robot.run(grace_s=0)


def submit_for_ever(url: str, folder: str, rate_per_s: float) -> None:
    """Submits at a steady rate until it is terminated; writes each acknowledged id."""
    from fleetlog import Submitter

    record = _notebook(Path(folder, "acknowledged.jsonl"))
    submitter = Submitter(url, retry_for_s=600)
    run, number = os.getpid(), 0
    while True:
        number += 1
        task, target = f"t{run}-{number}", f"target-{random.randrange(TARGETS)}"
        future = submitter.submit("work", {"target": target}, id=task, target=target)
        future.add_done_callback(partial(_acknowledge, record, task))
        time.sleep(1 / rate_per_s)


def _notebook(path: Path) -> Any:
    """A file that is written line by line until its process is killed."""
    return path.open("a", buffering=1)


def _acknowledge(record: Any, task: str, done: Any) -> None:
    if done.exception() is None:
        record.write(json.dumps(task) + "\n")


class Crew:
    """Robots and a submitter for one product."""

    def __init__(self, url: str, folder: Path, robots: int = 3, rate_per_s: float = 40) -> None:
        self.folder = folder
        context = multiprocessing.get_context("spawn")
        self._robots = [
            context.Process(target=be_robot, args=(url, f"r{n}", str(folder)), daemon=True) for n in range(robots)
        ]
        self._submitter = context.Process(target=submit_for_ever, args=(url, str(folder), rate_per_s), daemon=True)

    def start(self) -> None:
        """Everybody begins."""
        for process in (*self._robots, self._submitter):
            process.start()

    def stop_submitting(self) -> None:
        """No more tasks; the robots go on."""
        self._submitter.terminate()
        self._submitter.join(10)

    def stop(self) -> None:
        """Everybody ends."""
        for process in (*self._robots, self._submitter):
            process.terminate()
        for process in (*self._robots, self._submitter):
            process.join(20)
            process.kill()

    def acknowledged(self) -> set[str]:
        """Every task that was acknowledged to the submitter."""
        path = self.folder / "acknowledged.jsonl"
        return {json.loads(line) for line in path.read_text().splitlines()} if path.exists() else set()

    def work(self) -> list[tuple[str, int, str, float, float]]:
        """(task, attempt, target, began, ended) of all work done, on one machine's monotonic clock."""
        rows = [json.loads(line) for path in self.folder.glob("r*.jsonl") for line in path.read_text().splitlines()]
        return [tuple(row) for row in rows]
