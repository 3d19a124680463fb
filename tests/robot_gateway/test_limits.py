"""Limits over HTTP: set, listed with what is held, replaced, removed, refused; and a queue that is full."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.site import Site

PATH = "/v1/pools/hall-a/limits"


@pytest.fixture
def site() -> Iterator[Site]:
    """Real owners, projector and gateway; at most three tasks wait in a pool."""
    with Site(defaults={"queue_max": 3}) as running:
        running.client.post("/v1/pools", json={"pool": "hall-a"})
        yield running


def put(site: Site, name: str, **limit: Any) -> dict[str, Any]:
    """Sets a limit; the answer."""
    answer: dict[str, Any] = site.client.put(f"{PATH}/{name}", json=limit).json()
    return answer


def test_a_limit_from_setting_to_removal(site: Site) -> None:
    """It holds back what waits, says how many are held, is part of the pool; removed, what waits goes on."""
    answer = put(site, "kind/weld", running=1, rate_per_s=2.5)
    kept = {name: answer[name] for name in ("pool", "scope", "name", "running", "rate_per_s", "burst", "changed")}
    assert kept == {
        "pool": "hall-a", "scope": "kind", "name": "weld",
        "running": 1, "rate_per_s": 2.5, "burst": 1, "changed": True,
    }  # fmt: skip
    assert put(site, "kind/weld", running=1, rate_per_s=2.5, burst=1)["changed"] is False
    for task in ("w1", "w2"):
        site.submit("hall-a", id=task)
    with site.robot("r1", pool="hall-a") as robot:
        robot.hello(slots=4)
        robot.ask("ready", n=4)
        first = robot.expect("assign")
        accepted = robot.ask("accept", task=first["task"], attempt=first["attempt"])
        listed = site.client.get(PATH, params={"after": accepted["position"]}).json()
        [shown] = listed["items"]
        assert (shown["running"], shown["held"], shown["rate_per_s"], shown["burst"]) == (1, 1, 2.5, 1)
        assert shown["set_at"].endswith("Z")
        assert listed["next"] is None
        assert site.client.get("/v1/pools/hall-a").json()["limits"] == listed["items"]
        why = site.client.get("/v1/pools/hall-a/tasks/w2/why").json()
        reached = next(hold for hold in why["holds"] if hold["reason"] == "limit_reached")
        assert (reached["scope"], reached["name"], reached["held"], reached["running"]) == ("kind", "weld", 1, 1)
        assert "1 of 1 run" in why["text"]
        removed = site.client.delete(f"{PATH}/kind/weld")
        assert (removed.status_code, removed.json()["changed"]) == (200, True)
        assert robot.expect("assign")["task"] == "w2"
        assert site.client.get(PATH, params={"after": removed.json()["position"]}).json()["items"] == []
        robot.ask("bye")


def test_a_rate_says_when_the_next_begins(site: Site) -> None:
    """`why` gives the instant, as HTTP gives instants."""
    put(site, "key/ann", rate_per_s=0.001)
    for task in ("a1", "a2"):
        site.submit("hall-a", id=task, limit_key="ann")
    with site.robot("r1", pool="hall-a") as robot:
        robot.hello(slots=4)
        robot.ask("ready", n=4)
        assert robot.expect("assign")["task"] == "a1"
        [reached] = site.client.get("/v1/pools/hall-a/tasks/a2/why").json()["holds"]
        assert (reached["reason"], reached["scope"], reached["name"]) == ("rate_reached", "key", "ann")
        assert reached["at"].endswith("Z")
        robot.ask("bye")


@pytest.mark.parametrize(
    ("name", "limit", "reason", "field"),
    [
        ("kind/weld", {}, "invalid_field", "/running"),
        ("kind/weld", {"running": 0}, "invalid_field", "/running"),
        ("kind/weld", {"running": "4"}, "invalid_field", "/running"),
        ("kind/weld", {"rate_per_s": 2_000}, "invalid_field", "/rate_per_s"),
        ("kind/weld", {"running": 1, "burst": 2}, "invalid_field", "/burst"),
        ("kind/weld", {"runing": 1}, "unknown_field", "/runing"),
        (f"kind/{'k' * 65}", {"running": 1}, "invalid_field", "/name"),
        ("target/dock", {"running": 1}, "invalid_field", "/scope"),
        ("kind/a%20b", {"running": 1}, "invalid_field", "/name"),
    ],
)
def test_a_wrong_limit_is_refused(site: Site, name: str, limit: dict[str, Any], reason: str, field: str) -> None:
    """422 with the field."""
    answer = site.client.put(f"{PATH}/{name}", json=limit)
    problem = answer.json()
    assert (answer.status_code, problem["reason"], problem["field"]) == (422, reason, field)


def test_removing_what_is_not_there(site: Site) -> None:
    """404 no_such_limit; an unknown pool is another matter."""
    answer = site.client.delete(f"{PATH}/kind/weld")
    assert (answer.status_code, answer.json()["reason"]) == (404, "no_such_limit")
    answer = site.client.delete("/v1/pools/nowhere/limits/kind/weld")
    assert (answer.status_code, answer.json()["reason"]) == (404, "no_such_pool")


def test_the_same_command_again_gets_its_answer_again(site: Site) -> None:
    """By its Idempotency-Key; with another limit it is refused."""
    headers = {"Idempotency-Key": "6f9a1c1e-6d0e-5b0a-9a53-2d6f2f2f7c11"}
    first, again, other = (
        site.client.put(f"{PATH}/kind/weld", json={"running": n}, headers=headers) for n in (1, 1, 2)
    )
    assert again.json() == first.json() | {"position": again.json()["position"]}
    assert (other.status_code, other.json()["reason"]) == (409, "command_id_conflict")


def test_a_full_queue_says_when_to_come_back(site: Site) -> None:
    """429 queue_full with Retry-After, and the same in the body; what is there stays."""
    for task in ("w1", "w2", "w3"):
        site.submit("hall-a", id=task)
    answer = site.client.post("/v1/pools/hall-a/tasks", json={"id": "w4", "kind": "weld"})
    problem = answer.json()
    assert (answer.status_code, problem["reason"], problem["retryable"]) == (429, "queue_full", True)
    assert (answer.headers["Retry-After"], problem["retry_after_s"]) == ("5", 5)
