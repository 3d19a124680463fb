"""Files of lines and bulk work: whatever is killed meanwhile, the same command goes on, and nothing happens twice.

5,000 tasks for every run; FLEETLOG_LINES=100000 for the full size.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from commands.checker import Checker
from tests.support.broker import Broker
from tests.system.judge import all_events
from tests.system.product import Product, embedded, on_kafka, wait_until

LINES = int(os.environ.get("FLEETLOG_LINES", "5000"))
ENOUGH_S = 600.0
"""A command that takes longer is stuck."""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What is to be ended, in reverse order."""
    with ExitStack() as made:
        yield made


def write_lines(path: Path) -> list[dict[str, Any]]:
    """A file of whole tasks, some of them with an id of their own, some equal; what each is."""
    tasks: list[dict[str, Any]] = []
    for n in range(LINES):
        task: dict[str, Any] = {"kind": "check", "payload": n // 2 if n % 10 < 2 else n, "priority": n % 3}
        if n % 7 == 0:
            task["id"] = f"own-{n}"
        tasks.append(task)
    path.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return tasks


class CommandLine:
    """`fleetlog submit --lines` as a process of its own."""

    def __init__(self, product: Product, folder: Path) -> None:
        self._ids = folder / "ids.txt"
        words = ["submit", "--lines", str(folder / "tasks.jsonl"), "--gateway", product.url, "--timeout", "120"]
        with self._ids.open("w") as ids:
            self._process = subprocess.Popen([sys.executable, "-m", "fleetlog", *words], stdout=ids)

    def answered(self) -> int:
        """How many lines have their answer."""
        return self._ids.read_bytes().count(b"\n")

    def has_answered(self, lines: int) -> bool:
        """Whether so many lines have their answer."""
        assert self._process.poll() in (None, 0)
        return self.answered() >= lines

    def kill(self) -> None:
        """SIGKILL, and gone, before it was through."""
        self._process.kill()
        assert self._process.wait() != 0

    def finished(self) -> int:
        """Waits for its end; the exit code."""
        return self._process.wait(ENOUGH_S)


def events_of(product: Product, name: str) -> list[dict[str, Any]]:
    """The events of one type, after every invariant was checked."""
    checkers: dict[str, Checker] = {}
    found, findings = [], list[Any]()
    for record in all_events(product.reader()):
        checker = checkers.setdefault(record.key, Checker(record.key))
        findings += checker.event(record.value, record.header("hash"))
        event = json.loads(record.value)
        if event["type"].startswith(f"{name}."):
            found.append(event)
    assert findings == []
    return found


def kill_cli(line: CommandLine, product: Product) -> None:
    """The submitting program dies."""
    line.kill()


def kill_main(line: CommandLine, product: Product) -> None:
    """The embedded product dies whole, and is started again; the program waits for it."""
    product.parts[0].kill()
    product.start()


def kill_gateway(line: CommandLine, product: Product) -> None:
    """The gateway dies, and is started again; the program waits for it."""
    gateway = product.parts[-1]
    gateway.kill()
    gateway.start()
    product.until_ready()


def submit_while_killing(product: Product, folder: Path, kills: list[Callable[[CommandLine, Product], None]]) -> None:
    """The same command, as often as it takes, while something is killed; every line is in once, in the file's order."""
    tasks = write_lines(folder / "tasks.jsonl")
    for number, kill in enumerate(kills):
        line = CommandLine(product, folder)
        enough = LINES * (number + 1) // (len(kills) + 2)
        wait_until(partial(line.has_answered, enough), ENOUGH_S)
        kill(line, product)
        if kill is not kill_cli:
            assert line.finished() == 0
    last = CommandLine(product, folder)
    assert last.finished() == 0
    assert last.answered() == LINES

    submitted = events_of(product, "TaskSubmitted")
    assert [event["payload"]["json"] for event in submitted] == [task["payload"] for task in tasks]
    assert len({event["task"] for event in submitted}) == LINES
    assert [event["task"] for event in submitted if event["task"].startswith("own-")] == [
        task["id"] for task in tasks if "id" in task
    ]


def change_while_killing(product: Product, kill: Callable[[], None]) -> None:
    """A bulk change of every task, and a kill in the middle: it goes on by itself, each task is changed once."""
    waits = {"verb": "change", "pool": "default", "filter": "state=WAITING", "dry_run": True}
    count, position = LINES // 2, ""
    tasks = [{"kind": "check", "id": f"bulk-{n}"} for n in range(count)]
    for start in range(0, count, 500):
        position = product.ask("POST", "/v1/pools/default/tasks", {"tasks": tasks[start : start + 500]})["position"]
    found = product.ask("POST", f"/v1/bulk?after={position}", waits)
    token = found["token"]
    assert found["count"] >= count
    product.ask("POST", "/v1/bulk", {"verb": "change", "token": token, "changed": {"priority": 5}})
    wait_until(lambda: product.ask("GET", f"/v1/bulk/{token}")["done"] >= 500)
    kill()
    work = wait_until(lambda: (w := product.ask("GET", f"/v1/bulk/{token}"))["state"] != "going_on" and w, ENOUGH_S)

    assert (work["state"], work["outcomes"], work["refused"]) == ("done", {"WAITING": found["count"]}, {})
    changed = Counter(event["task"] for event in events_of(product, "TaskChanged"))
    assert len(changed) == found["count"]
    assert set(changed.values()) == {1}


def test_a_file_is_submitted_once_embedded(tmp_path: Path, stack: ExitStack) -> None:
    """The program is killed, then the whole product under it, and the program once more."""
    product = embedded(tmp_path)
    stack.callback(product.stop)
    product.start()
    submit_while_killing(product, tmp_path, [kill_cli, kill_main, kill_cli])


def test_bulk_work_acts_once_embedded(tmp_path: Path, stack: ExitStack) -> None:
    """The whole product is killed in the middle."""
    product = embedded(tmp_path)
    stack.callback(product.stop)
    product.start()

    def kill() -> None:
        product.parts[0].kill()
        product.start()

    change_while_killing(product, kill)


def test_files_and_bulk_work_on_kafka(tmp_path: Path, stack: ExitStack, broker: Broker) -> None:
    """The gateway is killed under both, on a genuine Kafka."""
    product = on_kafka(tmp_path, broker.address)
    stack.callback(product.stop)
    product.start()
    submit_while_killing(product, tmp_path, [kill_gateway, kill_cli])

    def kill() -> None:
        gateway = product.parts[-1]
        gateway.kill()
        time.sleep(0.1)
        gateway.start()
        product.until_ready()

    change_while_killing(product, kill)
