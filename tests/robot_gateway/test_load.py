"""A gateway with more to do than it can says so, takes no new work, and goes on with what was begun."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from robot_gateway import gateway, health, load
from robot_gateway.load import LATE_TURNS, TURNS, Load
from robot_gateway.pending import Collected, Pending
from robot_gateway.settings import GatewaySettings
from tests.robot_gateway.test_handshake import refused
from tests.support.site import Site, until


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks and turns follow each other quickly."""
    monkeypatch.setattr(health, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(health, "LOOK_SHARE", 1)
    monkeypatch.setattr(gateway, "SWEEP_EVERY_S", 0.05)
    monkeypatch.setattr(load, "LATE_S", 0.05)


@contextmanager
def too_much_to_do(site: Site) -> Iterator[None]:
    """The gateway's loop does little but sleep."""
    over, slept = threading.Event(), threading.Event()

    def sleep() -> None:
        time.sleep(0.15)
        slept.set()

    def burden() -> None:
        while not over.wait(0.01):
            slept.clear()
            site.gateway._on_loop(sleep)
            slept.wait(60)

    thread = threading.Thread(target=burden)
    thread.start()
    try:
        until(lambda: site.gateway.load.overloaded, "too much")
        yield
    finally:
        over.set()
        thread.join()


def line(site: Site) -> str:
    """What /readyz says of the load."""
    answer = site.client.get("/readyz")
    assert answer.status_code == 200
    return next(text for text in answer.text.splitlines() if text.startswith("load: "))


def test_an_overloaded_gateway_takes_no_new_work_and_goes_on_by_itself() -> None:
    """503 with a time for submissions and sessions, and it says so; reports and verbs are taken; ready again, without a
    hand, when the loop keeps up."""
    with Site(partitions=1) as site, site.robot("r1") as robot:
        robot.hello()
        task = site.submit("hall-a")["id"]
        with too_much_to_do(site):
            answer = site.client.post("/v1/pools/hall-a/tasks", json={"kind": "weld"})
            assert (answer.status_code, answer.json()["reason"]) == (503, "not_ready")
            assert answer.headers["Retry-After"] == "5"
            assert "overloaded" in answer.json()["detail"]
            problem = refused(site, "/v1/pools/hall-a/robots/r2/session")
            assert (problem["status"], problem["reason"], problem["retry_after_s"]) == (503, "not_ready", 5.0)
            robot.ask("ready", n=0)
            assert site.client.post(f"/v1/pools/hall-a/tasks/{task}/cancel").status_code == 200
            assert "fleetlog_gateway_overloaded 1.0" in site.client.get("/metrics").text
            said = until(lambda: (s := line(site)) != "load: ready" and s, "the line")
            assert said.startswith("load: degraded: overloaded, its loop comes ")
            assert site.client.get("/healthz").text == "alive, degraded: load; see /readyz\n"
        until(lambda: line(site) == "load: ready", "readiness")
        assert site.submit("hall-a")["state"] == "WAITING"


def test_one_pause_is_no_overload() -> None:
    """A machine that stood still for a minute has one late turn; it takes half of the last ones."""
    turning = Load(GatewaySettings(), lambda: 0, Pending(1, 30, time.monotonic))
    turning.turned(60.0)
    assert (turning.overloaded, turning.no_new_work(), turning.in_words()) == (False, None, None)
    for _ in range(LATE_TURNS - 1):
        turning.turned(1.0)
    assert turning.overloaded
    for _ in range(TURNS - LATE_TURNS + 1):
        turning.turned(0.0)
    assert not turning.overloaded


def test_bounds_that_are_reached_are_said() -> None:
    """As many robots as may; unanswered commands from nine tenths of what may be."""
    with Site(scripted=True, projector=False, partitions=1, sessions_max=1, unanswered_max=10) as site:
        with site.robot("r1"):
            said = until(site.gateway.load.in_words, "the sentence")
            assert said.startswith("1 robots are connected, no further ones are taken: start another gateway")
        until(lambda: site.gateway.load.in_words() is None, "room")
    pending = Pending(10, 30, time.monotonic)
    bounded = Load(GatewaySettings(unanswered_max=10), lambda: 0, pending)
    for number in range(9):
        assert bounded.in_words() is None
        pending.add("hall-a", f"c{number}", Collected(1, lambda answers: None), 0)
    assert (bounded.in_words() or "").startswith("9 commands wait for an answer and 10 are the most")


def test_owners_that_do_not_answer_are_said() -> None:
    """A gateway alone cannot see owners; commands without an answer tell. Answered, all is well again."""
    with Site(scripted=True, projector=False, partitions=1) as site:
        site.owner.on_command, answering = lambda command: None, site.owner.on_command
        thread = threading.Thread(
            target=site.client.post, args=("/v1/pools/hall-a/tasks",), kwargs={"json": {"kind": "x"}}
        )
        thread.start()
        until(lambda: len(site.gateway.pending) == 1, "the command")
        assert site.gateway.load.in_words() is None
        site.gateway.pending._by_age[0].due -= 12
        said = site.gateway.load.in_words() or ""
        assert said.startswith("a command has had no answer for 12 s: see whether owners run")
        site.gateway.pending._by_age[0].due -= 60
        thread.join(60)
        assert site.gateway.load.in_words() is None
        site.owner.on_command = answering
