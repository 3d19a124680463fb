"""Figures of a pool over HTTP: live and over a time (R7)."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.site import Site, until


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Real owners and tables."""
    with Site(partitions=2) as running:
        yield running


def stats(site: Site, pool: str, **params: Any) -> dict[str, Any]:
    """The figures."""
    answer = site.client.get(f"/v1/pools/{pool}/stats", params=params)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Fleetlog-Position"] == answer.json()["position"]
    return dict(answer.json())


def test_r7_figures_live_and_over_a_time(site: Site) -> None:
    """Queue length, waiting time (p50, p95, oldest) and error share per robot and kind, live and over the past hour."""
    for n in range(4):
        site.submit(id=f"t{n}", kind="weld")
    site.submit(id="painted", kind="paint")
    with site.robot("r1") as robot:
        robot.hello(slots=1)
        for way in ("complete", "complete", "fail"):
            robot.ask("ready", n=1)
            given = robot.expect("assign")
            robot.ask("ready", n=0)
            which = {"task": given["task"], "attempt": given["attempt"]}
            robot.ask("accept", **which)
            if way == "complete":
                robot.ask("complete", **which, result=1)
            else:
                error = {"type": "Link", "message": "down"}
                robot.ask("fail", **which, **{"class": "fatal"}, error=error)
        found = until(lambda: (f := stats(site, "hall-a"))["total"]["events"].get("dead") and f, "the last event")

    assert (found["now"]["tasks"]["WAITING"], found["now"]["robots"]) == (2, {"IDLE": 1})
    assert found["now"]["oldest_waiting_at"]
    total = found["total"]
    assert (total["waiting"], total["events"]["submitted"], total["events"]["completed"]) == (2, 5, 2)
    assert total["error_share"] == pytest.approx(1 / 3, abs=0.001)
    assert total["waited"]["count"] == 3
    assert 0 <= total["waited"]["p50_s"] <= total["waited"]["p95_s"] <= total["waited"]["p99_s"]
    assert total["ran"]["count"] == 2
    assert {kind["kind"]: kind["waiting"] for kind in found["kinds"]} == {"paint": 1, "weld": 1}
    assert len(found["steps"]) in (12, 13)
    assert sum(step["events"].get("completed", 0) for step in found["steps"]) == 2
    assert found["steps"][-1]["waiting"] == 2
    robot_figures = found["robots"][0]
    assert (robot_figures["robot"], robot_figures["slots"], robot_figures["events"]) == (
        "r1",
        1,
        {"completed": 2, "failed": 1},
    )
    assert robot_figures["error_share"] == pytest.approx(1 / 3, abs=0.001)
    assert 0 <= robot_figures["use"] <= 1
    yesterday = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    before = stats(site, "hall-a", to=yesterday, step_s=3600)
    assert (before["total"]["events"], before["total"]["waiting"]) == ({}, 0)


@pytest.mark.parametrize(
    ("pool", "params", "status", "reason", "field"),
    [
        ("nowhere", {}, 404, "no_such_pool", None),
        ("hall-a", {"step_s": 59}, 422, "invalid_field", "/step_s"),
        ("hall-a", {"step_s": 90}, 422, "invalid_field", "/step_s"),
        ("hall-a", {"from": "yesterday"}, 422, "invalid_field", "/from"),
        ("hall-a", {"to": "2020-01-01T00:00:00Z"}, 422, "invalid_field", "/from"),
        ("hall-a", {"from": "2099-01-01T00:00:00Z"}, 422, "invalid_field", "/to"),
        ("hall-a", {"step": 60}, 422, "unknown_field", "/step"),
    ],
)
def test_what_is_wrong_is_refused(
    site: Site, pool: str, params: dict[str, Any], status: int, reason: str, field: str | None
) -> None:
    """With the reason and the field."""
    site.submit(id="t0", kind="weld")
    answer = site.client.get(f"/v1/pools/{pool}/stats", params=params)
    assert (answer.status_code, answer.json()["reason"], answer.json().get("field")) == (status, reason, field)
