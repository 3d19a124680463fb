"""The play: start everything, submit, kill a robot in the middle of a task, kill Fleetlog, and see it through."""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from fleetlog.asking import Asking, Unreachable
from fleetlog.demo.children import Child, fleetlog_itself, python_robot, shell_robot
from fleetlog.demo.diary import DemoFault, Diary
from fleetlog.demo.files import IN_PARTS, SourceFile, submission
from fleetlog.demo.referee import Killed
from fleetlog.output import Item
from fleetlog.problems import Problem
from fleetlog.watching.fleet import FleetWatcher

POOL: Final = "default"
WINDOW_S: Final = 1
LEASE_S: Final = 3
"""Three windows: a robot that falls silent is noticed within four seconds."""
PYTHON_ROBOTS: Final = ("py-1", "py-2")
SHELL_ROBOT: Final = "sh-1"
VICTIM: Final = PYTHON_ROBOTS[0]
FIRST_SHARE: Final = 0.6
"""The share of the files that is submitted before the first blow; the rest comes while Fleetlog is killed."""
AT_ONCE: Final = 50
CEILING_S: Final = 120.0
"""How long any single thing may take on a slow machine."""
DOWN_S: Final = 0.5
"""How long Fleetlog stays down, so that it can be seen."""


class Play:
    """The processes and what is done to them. `run` does it all; `close` ends what still runs."""

    def __init__(self, files: Sequence[SourceFile], folder: Path, listen: str, diary: Diary) -> None:
        self.url = f"http://{listen}"
        self.total = len(files)
        self.killed: Killed | None = None
        self._files = files
        self._diary = diary
        self._fleetlog = fleetlog_itself(folder, folder / "data", listen)
        self._robots = {name: python_robot(name, self.url, POOL, folder) for name in PYTHON_ROBOTS}
        self._robots[SHELL_ROBOT] = shell_robot(SHELL_ROBOT, self.url, POOL, folder)
        self.watcher = FleetWatcher(self._asking, POOL, on_event=diary.take)

    def _asking(self) -> Asking:
        return Asking(self.url, timeout_s=CEILING_S)

    # ---- the acts ----

    def run(self) -> None:
        """Plays it to the end of the last task. Raises DemoFault, Interrupted."""
        try:
            self._start()
            self._submit(self._first_wave())
            self._kill_a_robot()
            second = _Background(lambda: self._submit(self._second_wave()))
            self._kill_fleetlog(second)
            second.finish()
            self._see_it_through()
        except Problem as problem:
            raise DemoFault(str(problem)) from None

    def _start(self) -> None:
        said = self._diary.remark
        said("starting Fleetlog: the log, its owners, the gateway and the tables, in two processes")
        self._start_fleetlog()
        asking = self._asking()
        asking.post("/v1/pools", {"pool": POOL, "settings": {"window_s": WINDOW_S, "lease_s": LEASE_S}})
        self.watcher.start()
        self._until(self.watcher.follows.is_set, "the stream of events")
        said(f"Fleetlog serves at {self.url}; a robot that is silent for {LEASE_S} s loses its lease")
        for robot in self._robots.values():
            robot.start()
        for name, robot in self._robots.items():
            # Not its hello: who asks for tasks too late would get none of the large ones.
            self._event(_asks_for_tasks(name), f"{name} to ask for tasks", robot)
        said(
            f"{len(self._robots)} robots are there: {', '.join(PYTHON_ROBOTS)} in Python, {SHELL_ROBOT} a shell command"
        )

    def _start_fleetlog(self) -> None:
        self._fleetlog.start()
        asking = self._asking()
        asking.timeout_s = 1.0

        def ready() -> bool:
            if not self._fleetlog.running():
                raise DemoFault(f"Fleetlog ended: {self._fleetlog.last_words()} (see {self._fleetlog.said})")
            try:
                return asking.get("/v1/pools", limit=1) is not None
            except Unreachable:
                return False
            except Problem:
                return False

        self._until(ready, "Fleetlog ready to serve")
        asking.close()

    def _kill_a_robot(self) -> None:
        """In the middle of a task: after its second checkpoint, when the third part has begun."""
        robot = self._robots[VICTIM]
        saved = self._event(
            lambda e: e["type"] == "CheckpointSaved.v1" and e["robot"] == VICTIM and e["number"] >= 2,
            f"a second checkpoint of {VICTIM}",
            robot,
        )
        start = self._diary.now()
        pid = robot.pid
        robot.kill()
        self.killed = Killed(VICTIM, time.time_ns() // 1_000_000)
        task, number = saved["task"], saved["number"]
        self._diary.remark(
            f"SIGKILL to robot {VICTIM} (process {pid}) in the middle of {task}, after checkpoint {number}", True
        )
        self._diary.wait_for(_expired(task), f"the end of the lease of {VICTIM}", CEILING_S, start)
        self._diary.remark(f"its lease ended: {LEASE_S} windows without a heartbeat; {task} is back in the queue")
        moved = self._diary.wait_for(_assigned(task), f"another robot for {task}", CEILING_S, start)
        where = (
            f"from checkpoint {moved['checkpoint_number']}" if moved.get("checkpoint_number") else "from its beginning"
        )
        self._diary.remark(f"{moved['robot']} goes on with it {where}, attempt {moved['attempt']}")
        robot.start()
        self._diary.remark(f"robot {VICTIM} is started again (process {robot.pid})")

    def _kill_fleetlog(self, second: "_Background") -> None:
        """While tasks are being submitted and robots work."""
        half = self.total - len(self._second_wave()) // 2
        self._until(lambda: self._diary.count("TaskSubmitted") >= half or second.ended(), "half of the second wave")
        start = self._diary.now()
        done = self._diary.count("TaskCompleted")
        pid = self._fleetlog.pid
        self._fleetlog.kill()
        self._diary.remark(f"SIGKILL to Fleetlog itself (process {pid} and its child), {done:,} tasks done", True)
        time.sleep(DOWN_S)
        self._start_fleetlog()
        self._diary.remark(f"Fleetlog is started again (process {self._fleetlog.pid}) and reads its log")
        taken = self._event(lambda e: e["type"] == "OwnershipTaken.v1", "OwnershipTaken", self._fleetlog, start)
        self._diary.remark(f"it took over where it was, after a gap of {taken['gap_ms'] / 1000:.1f} s; nothing is lost")

    def _see_it_through(self) -> None:
        asking = self._asking()

        def ended() -> bool:
            tasks = asking.get(f"/v1/pools/{POOL}").get("tasks", {})
            open_ones = sum(count for state, count in tasks.items() if state not in ("COMPLETED", "DEAD"))
            return sum(tasks.values()) >= self.total and not open_ones

        self._until(ended, f"the end of all {self.total:,} tasks")
        self._diary.remark(f"all {self.total:,} tasks have ended")
        asking.close()

    # ---- submitting ----

    def _first_wave(self) -> Sequence[SourceFile]:
        return self._files[: int(self.total * FIRST_SHARE)]

    def _second_wave(self) -> Sequence[SourceFile]:
        return self._files[int(self.total * FIRST_SHARE) :]

    def _submit(self, files: Sequence[SourceFile]) -> None:
        """Files are sorted by size, so the first ones are those that come in parts."""
        asking = self._asking()
        # Who was answered once asks again while Fleetlog is away; the kill may come before the first answer below.
        asking.get(f"/v1/pools/{POOL}")
        large = {file.task for file in self._files[:IN_PARTS]}
        for begin in range(0, len(files), AT_ONCE):
            self._diary.check()
            tasks = [submission(file, file.task in large) for file in files[begin : begin + AT_ONCE]]
            self._until(partial(self._are_taken, asking, tasks), "a gateway that takes tasks")
        self._diary.remark(f"{len(files):,} tasks submitted, for as many of the {self.total:,} files")
        asking.close()

    @staticmethod
    def _are_taken(asking: Asking, tasks: Sequence[Item]) -> bool:
        """Submits them; not yet where Fleetlog has just begun again. What was taken before is known by its id."""
        # Asked again under the same command id where no answer came: that is safe, and happens here.
        answer = asking.post(f"/v1/pools/{POOL}/tasks", {"tasks": tasks})
        refused = [entry["problem"] for entry in answer["tasks"] if "task" not in entry]
        for problem in refused:
            if not problem.get("retryable"):
                raise DemoFault(f"a task was refused: {problem.get('detail')}")
        return not refused

    # ---- waiting ----

    def _until(self, true: Callable[[], Any], what: str) -> None:
        self._diary.wait_until(true, what, CEILING_S)

    def _event(self, wanted: Callable[[Item], bool], what: str, child: Child, start: int = 0) -> Item:
        try:
            return self._diary.wait_for(wanted, what, CEILING_S, start)
        except DemoFault as fault:
            raise DemoFault(f"{fault}; {child.name} said last: {child.last_words() or 'nothing'}") from None

    def close(self) -> None:
        """Ends robots first, then Fleetlog."""
        self.watcher.stop()
        for child in (*self._robots.values(), self._fleetlog):
            child.stop()


def _asks_for_tasks(robot: str) -> Callable[[Item], bool]:
    return lambda event: event["type"] == "RobotReadyChanged.v1" and event["robot"] == robot and event["n"] > 0


def _expired(task: str) -> Callable[[Item], bool]:
    return lambda event: event["type"] == "LeaseExpired.v1" and event["task"] == task


def _assigned(task: str) -> Callable[[Item], bool]:
    return lambda event: event["type"] == "TaskAssigned.v1" and event["task"] == task


class _Background:
    """Work in a thread of its own; what it raises comes out of `finish`."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="second-wave", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self._error = error

    def ended(self) -> bool:
        """Whether it is done, or has failed."""
        return not self._thread.is_alive()

    def finish(self) -> None:
        """Waits for it."""
        self._thread.join(CEILING_S)
        if self._error is not None:
            raise self._error
