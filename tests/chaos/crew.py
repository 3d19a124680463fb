"""What works while chaos reigns: robots and submitters in processes of their own, who write down what they know."""

import itertools
import json
import multiprocessing
import random
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

WORK_S = (0.02, 0.4)
STEP_S = 0.02
TARGETS = 8
SLOTS = 3
RATE_PER_S = 4.0
"""Little enough for the slowest machine to keep up with between faults."""


def be_robot(url: str, pool: str, name: str, folder: str) -> None:
    """Works step by step, obeys when it is told to stop, and writes down how long it was at which target."""
    from fleetlog import Retry, Robot

    record = _notebook(Path(folder, f"{name}.work"))
    gpu = name.endswith("-0")
    capabilities = ["kind:work", *(["gpu", "gpu_mem=24"] if gpu else [])]
    robot = Robot(
        name, pool=pool, gateway=url, slots=SLOTS, capabilities=capabilities, spool=Path(folder, f"{name}.spool")
    )

    @robot.task("work")
    def work(context: Any, payload: Any) -> dict[str, Any]:
        began = time.monotonic()
        until = began + random.uniform(*WORK_S)
        while not context.cancelled and time.monotonic() < until:
            row = [context.task, context.attempt, f"{pool}/{payload['target']}", began, time.monotonic()]
            record.write(json.dumps(row) + "\n")
            time.sleep(STEP_S)
        if context.cancelled:
            raise context.Stopped
        if payload.get("fails", 0) > context.failures:
            raise Retry("not this time", after_s=0.1)
        return {"by": name}

    robot.run(grace_s=0)


def be_submitter(urls: Sequence[str], pools: Sequence[str], folder: str, rate_per_s: float, seed: int) -> None:
    """Submits at a steady rate, through every gateway in turn, until it is ended; writes each acknowledged task."""
    from fleetlog import Submitter

    dice = random.Random(seed)
    record = _notebook(Path(folder, "acknowledged.jsonl"))
    submitters = {
        (url, pool): Submitter(url, pool=pool, retry_for_s=900, in_flight=1_024) for url in urls for pool in pools
    }
    for number in itertools.count():
        pool, url = dice.choice(pools), urls[number % len(urls)]
        task, target = f"t{seed}-{number}", f"target-{dice.randrange(TARGETS)}"
        payload = {"target": target, "fails": dice.choice([0, 0, 0, 0, 1])}
        future = submitters[url, pool].submit(
            "work",
            payload,
            id=task,
            target=target,
            priority=dice.randint(0, 5),
            slot_cost=dice.choice([1, 1, 2]),
            requirement=dice.choice([[], [], [], ["gpu"], ["gpu_mem>=16"]]),
        )
        future.add_done_callback(partial(_acknowledge, record, pool, task))
        time.sleep(1 / rate_per_s)


def _notebook(path: Path) -> Any:
    """A file that is written line by line until its process is killed."""
    return path.open("a", buffering=1)


def _acknowledge(record: Any, pool: str, task: str, done: Any) -> None:
    if done.exception() is None:
        record.write(json.dumps([pool, task]) + "\n")


class Crew:
    """Robots for each pool, and one submitter; robots may be killed and begin again."""

    def __init__(
        self, robots_at: Sequence[str], submit_at: Sequence[str], pools: Sequence[str], folder: Path, seed: int
    ) -> None:
        self.folder = folder
        self._context = multiprocessing.get_context("spawn")
        self._robots: dict[str, BaseProcess] = {}
        self._as_robot = {
            f"{pool}-{number}": (robots_at[number % len(robots_at)], pool) for pool in pools for number in range(2)
        }
        self._submitting = (list(submit_at), list(pools), str(folder), RATE_PER_S, seed)
        self._submitter: BaseProcess | None = None

    @property
    def names(self) -> list[str]:
        """The robots."""
        return list(self._as_robot)

    def start(self) -> None:
        """Everybody begins."""
        for name in self.names:
            self.start_robot(name)
        self._submitter = self._context.Process(target=be_submitter, args=self._submitting, daemon=True)
        self._submitter.start()

    def start_robot(self, name: str) -> None:
        """One begins, with what it kept on disk."""
        url, pool = self._as_robot[name]
        process = self._context.Process(target=be_robot, args=(url, pool, name, str(self.folder)), daemon=True)
        process.start()
        self._robots[name] = process

    def kill_robot(self, name: str) -> None:
        """SIGKILL, in the middle of whatever it did."""
        self._robots[name].kill()
        self._robots[name].join()

    def revive(self) -> list[str]:
        """Robots that ended by themselves begin again, as a supervisor would do."""
        ended = [name for name, process in self._robots.items() if not process.is_alive()]
        for name in ended:
            self.start_robot(name)
        return ended

    def stop_submitting(self) -> None:
        """No more tasks; what was acknowledged is on paper."""
        if self._submitter is not None:
            self._submitter.kill()
            self._submitter.join()

    def stop(self) -> None:
        """Everybody ends."""
        self.stop_submitting()
        for process in self._robots.values():
            process.kill()
            process.join()

    def acknowledged(self) -> dict[str, set[str]]:
        """pool -> every task that the submitter was told of."""
        found: dict[str, set[str]] = {}
        for pool, task in lines_of(self.folder / "acknowledged.jsonl"):
            found.setdefault(pool, set()).add(task)
        return found

    def work(self) -> list[tuple[str, int, str, float, float]]:
        """(task, attempt, target, began, last seen there) of all work, on the one monotonic clock of this machine."""
        spans = {}
        for path in self.folder.glob("*.work"):
            for task, attempt, target, began, until in lines_of(path):
                spans[path.name, task, attempt, began] = (task, attempt, target, began, until)
        return list(spans.values())


def lines_of(path: Path) -> list[Any]:
    """The whole lines of a notebook whose writer may have been killed."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
