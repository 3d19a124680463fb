"""S: some dozens to a thousand servers, through HTTP and WebSocket: a target each, one action at a time, in turns."""

import random
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from robot_gateway.conformance.checking import Message
from tests.support.site import Site
from tests.support.worker import Worker

POOL = "servers"


@pytest.fixture
def site() -> Iterator[Site]:
    """A whole Fleetlog whose ageing interval is longer than a test."""
    with Site(partitions=1, defaults={"ageing_ms": 86_400_000, "backoff_first_ms": 300}) as made:
        yield made


def submit(site: Site, *tasks: dict[str, Any]) -> None:
    """Many at once, in order."""
    for first in range(0, len(tasks), 1_000):
        answer = site.client.post(f"/v1/pools/{POOL}/tasks", json={"tasks": tasks[first : first + 1_000]})
        assert {row["status"] for row in answer.json()["tasks"]} == {201}, answer.text


def action(task: str, server: str, kind: str = "ping", **more: Any) -> dict[str, Any]:
    """One action on one server."""
    return {"id": task, "kind": kind, "target": server, **more}


def test_s1_one_action_per_server_at_a_time(site: Site) -> None:
    """add (server 1, task 11), (2, 12), (1, 13): poll gives 11, 12, then nothing; finish(1), poll gives 13."""
    submit(site, action("11", "1"), action("12", "2"), action("13", "1"))
    with site.robot("r1", POOL) as robot:
        robot.hello(slots=3, capabilities=[])
        robot.say("ready", n=3)
        assert [robot.expect("assign")["task"] for _ in range(2)] == ["11", "12"]
        why = site.client.get(f"/v1/pools/{POOL}/tasks/13/why").json()
        assert why["holds"][0]["reason"] == "target_held"
        assert why["holds"][0]["by"] == "11"
        robot.ask("accept", task="11", attempt=1)
        robot.ask("complete", task="11", attempt=1)
        assert robot.expect("assign")["task"] == "13"


def test_s2_a_users_command_goes_before_pings_of_the_same_server(site: Site) -> None:
    """Several kinds, each with a priority of its own."""
    pings = [action(f"ping-{k}-{server}", server, priority=1) for k in range(3) for server in ("a", "b")]
    submit(site, *pings, action("update-a", "a", "update", priority=4), action("command-b", "b", "command", priority=9))
    with Worker(site.url, POOL, "r1", slots=1) as robot:
        robot.work_until(lambda: robot.finished == 8)
    assert robot.order[:2] == ["command-b", "update-a"]
    assert robot.order[2:] == ["ping-0-b", "ping-0-a", "ping-1-b", "ping-1-a", "ping-2-b", "ping-2-a"]


def test_s3_never_two_actions_on_one_server(site: Site) -> None:
    """Whatever the kind, the robot or the failure: by the robots' own records, no two works on a server overlap."""
    dice = random.Random(3)
    servers = ["a", "b", "c", "d"]
    kinds = ["ping", "reboot", "update"]
    submit(site, *(action(f"t{k}", dice.choice(servers), dice.choice(kinds), priority=k % 3) for k in range(120)))
    lock = threading.Lock()

    def end(worker: Worker, given: Message) -> None:
        with lock:
            fails = dice.random() < 0.25 and given["failures"] < 2
        worker.fail(given) if fails else worker.complete(given)

    robots = [Worker(site.url, POOL, f"r{k}", slots=4, end=end) for k in range(3)]
    ended = threading.Event()

    threads = [threading.Thread(target=robot.work_until, args=(ended.is_set,)) for robot in robots]
    for thread in threads:
        thread.start()
    for k in range(120):
        site.wait_for_state(f"t{k}", "COMPLETED", POOL)
    ended.set()
    for thread in threads:
        thread.join()
    for robot in robots:
        robot.leave()
    works = sorted((row for robot in robots for row in robot.worked), key=lambda row: row[2])
    assert len(works) > 120
    for server in servers:
        spans = [(began, done) for _, target, began, done in works if target == server]
        assert all(done <= began for (_, done), (began, _) in pairwise(spans))


def test_s4_the_drum(site: Site) -> None:
    """1,000 servers that all have work, and 8 slots: round robin; a server with 10,000 waiting tasks delays nobody."""
    servers = [f"s{k}" for k in range(1_000)]
    submit(site, *(action(f"busy-{k}", servers[0]) for k in range(10_000)))
    submit(site, *(action(f"{turn}-{server}", server) for turn in range(2) for server in servers[1:]))
    server_of = {f"{turn}-{server}": server for turn in range(2) for server in servers[1:]}
    with Worker(site.url, POOL, "r1", slots=8) as robot:
        robot.work_until(lambda: robot.finished >= 2_000)
    served = [server_of.get(task, servers[0]) for task in robot.order[:2_000]]
    assert sorted(served[:1_000]) == sorted(served[1_000:]) == sorted(servers)


def test_s5_a_link_is_down(site: Site) -> None:
    """The task waits with back-off, the others of that server behind it in order, other servers are not touched; it
    runs when the link is back."""
    submit(site, *(action(f"a{k}", "a") for k in range(3)), *(action(f"b{k}", "b") for k in range(3)))
    links = iter([False, False])

    def end(worker: Worker, given: Message) -> None:
        up = given["target"] != "a" or next(links, True)
        worker.complete(given) if up else worker.fail(given)

    with Worker(site.url, POOL, "r1", slots=1, end=end) as robot:
        robot.work_until(lambda: robot.finished == 8)
    done = [task for task in robot.order if task.startswith("a")]
    assert done == ["a0", "a0", "a0", "a1", "a2"]
    assert robot.order[:4] == ["a0", "b0", "b1", "b2"]
