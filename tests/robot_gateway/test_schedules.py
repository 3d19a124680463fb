"""Schedules over HTTP: set, listed, paused, fired by hand, removed, and what is refused with which field."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.support.site import Site, until

PATH = "/v1/pools/hall-a/schedules"
YEARLY = {"cron": "30 2 29 2 *", "zone": "Europe/Berlin", "task": {"kind": "audit"}}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Real owners and tables."""
    with Site(partitions=2) as running:
        yield running


def put(site: Site, name: str, body: dict[str, Any]) -> Any:
    """Sets a schedule; the answer."""
    return site.client.put(f"{PATH}/{name}", json=body)


def listed(site: Site, answer: Any, name: str) -> dict[str, Any]:
    """The schedule as the tables have it after an answer."""
    found: dict[str, Any] = site.client.get(f"{PATH}/{name}", params={"after": answer.json()["position"]}).json()
    return found


def test_a_schedule_is_set_shown_and_listed(site: Site) -> None:
    """As it was said, in HTTP units, with its next firing; the same again changes nothing."""
    body = {
        "every_s": 3600,
        "jitter_s": 2.5,
        "overlap": "queue_one",
        "catch_up": 2,
        "task": {"kind": "scan", "payload": {"deep": True}, "lease_s": 20, "target": "server-1"},
    }
    answer = put(site, "scan", body)
    assert answer.status_code == 200, answer.text
    assert {"id": "scan", "pool": "hall-a", "changed": True}.items() <= answer.json().items()
    shown = listed(site, answer, "scan")
    assert {"id": "scan", "pool": "hall-a", "every_s": 3600, "jitter_s": 2.5, "fired": 0}.items() <= shown.items()
    assert (shown["overlap"], shown["catch_up"], shown["actor"]) == ("queue_one", 2, "local")
    assert shown["task"] == {"kind": "scan", "payload": {"deep": True}, "lease_s": 20, "target": "server-1"}
    assert shown["next"]["task"].startswith("scan@")
    assert shown["next"]["instant"] <= shown["next"]["due_at"]
    again = put(site, "scan", body)
    assert (again.status_code, again.json()["changed"]) == (200, False)
    answer = put(site, "audit", YEARLY)
    items = site.client.get(PATH, params={"after": answer.json()["position"]}).json()["items"]
    assert [item["id"] for item in items] == ["audit", "scan"]
    first = site.client.get(PATH, params={"limit": 1}).json()
    rest = site.client.get(PATH, params={"limit": 1, "cursor": first["next"]}).json()
    assert [first["items"][0]["id"], rest["items"][0]["id"]] == ["audit", "scan"]


def test_the_next_firings_with_zone_and_utc(site: Site) -> None:
    """Ten, or as many as asked for, from now or from an instant; over a clock change as its zone shows it."""
    answer = put(site, "nightly", YEARLY | {"cron": "30 2 * * *"})
    path = f"{PATH}/nightly/next"
    found = site.client.get(path, params={"after": answer.json()["position"]}).json()
    assert (len(found["items"]), found["zone"], found["paused"]) == (10, "Europe/Berlin", False)
    for item in found["items"]:
        assert datetime.fromisoformat(item["instant"]) == datetime.fromisoformat(item["local"])
    found = site.client.get(path, params={"since": "2026-10-24T12:00:00Z", "count": 2}).json()
    assert [item["local"] for item in found["items"]] == ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]
    assert [item["task"] for item in found["items"]] == ["nightly@20261025T003000Z", "nightly@20261026T013000Z"]
    refused = site.client.get(path, params={"since": "yesterday"}).json()
    assert (refused["reason"], refused["field"]) == ("invalid_field", "/since")
    assert site.client.get(path, params={"count": 101}).json()["reason"] == "invalid_field"


def test_a_firing_by_hand_can_be_looked_at_and_run(site: Site) -> None:
    """Its id has the mark of schedules; every path of tasks takes it."""
    put(site, "manual", YEARLY | {"task": {"kind": "audit", "payload": 7}})
    answer = site.client.post(f"{PATH}/manual/fire", json={"reason": "now"})
    task = answer.json()["id"]
    assert task.startswith("manual@")
    card = site.client.get(f"/v1/pools/hall-a/tasks/{task}", params={"after": answer.json()["position"]}).json()
    assert (card["state"], card["schedule"]["id"]) == ("WAITING", "manual")
    assert site.client.get(f"/v1/pools/hall-a/tasks/{task}/payload").json() == 7
    assert site.client.get(f"/v1/pools/hall-a/tasks/{task}/why").json()["state"] == "WAITING"
    assert site.client.post(f"{PATH}/manual/fire", json={}).json()["reason"] in ("wrong_state", "id_conflict")
    found = site.client.get("/v1/tasks", params={"where": "schedule=manual"}).json()
    assert [item["id"] for item in found["items"]] == [task]
    with site.robot("r1", pool="hall-a") as robot:
        robot.hello(slots=4)
        robot.ask("ready", n=4)
        offered = robot.expect("assign")
        assert (offered["task"], offered["payload"]) == (task, 7)
        robot.ask("accept", task=task, attempt=offered["attempt"])
        robot.ask("complete", task=task, attempt=offered["attempt"], result="done")
        robot.ask("bye")
    assert site.wait_for_state(task, "COMPLETED")["schedule"]["id"] == "manual"


def test_paused_resumed_removed(site: Site) -> None:
    """Each once; a repeat says that nothing changed; what is not there is refused."""
    put(site, "often", YEARLY)
    answer = site.client.post(f"{PATH}/often/pause", json={"reason": "holiday"})
    assert answer.json()["changed"] is True
    shown = listed(site, answer, "often")
    assert shown["paused"]["reason"] == "holiday"
    assert "next" not in shown
    assert site.client.get(f"{PATH}/often/next").json()["paused"] is True
    assert site.client.post(f"{PATH}/often/pause", json={}).json()["changed"] is False
    answer = site.client.post(f"{PATH}/often/resume", json={})
    assert "paused" not in listed(site, answer, "often")
    assert site.client.post(f"{PATH}/often/resume", json={}).json()["changed"] is False
    answer = site.client.request("DELETE", f"{PATH}/often", json={"reason": "moved"})
    assert answer.json()["changed"] is True
    until(lambda: site.client.get(f"{PATH}/often").status_code == 404, "the removal")
    for method, path in (("GET", "/often"), ("GET", "/often/next"), ("DELETE", "/often"), ("POST", "/often/pause")):
        assert site.client.request(method, PATH + path, json=None).json()["reason"] == "no_such_schedule"


@pytest.mark.parametrize(
    ("change", "reason", "field"),
    [
        ({"cron": "61 * * * *"}, "invalid_field", "/cron"),
        ({"cron": "0 0 30 2 *"}, "never_fires", "/cron"),
        ({"zone": "Europe/Bremen"}, "invalid_field", "/zone"),
        ({"cron": None, "zone": None, "every_s": 0.5}, "invalid_field", "/every_s"),
        ({"cron": None, "zone": None, "every_s": -60}, "invalid_field", "/every_s"),
        ({"cron": None, "zone": None, "every_s": 1e300}, "invalid_field", "/every_s"),
        ({"cron": None, "zone": None}, "invalid_field", "/every_s"),
        ({"every_s": 60}, "invalid_field", "/cron"),
        ({"cron": None, "every_s": 60}, "invalid_field", "/zone"),
        ({"cron": "*/5 * * * *", "jitter_s": 300}, "invalid_field", "/jitter_s"),
        ({"catch_up": 101}, "invalid_field", "/catch_up"),
        ({"overlap": "maybe"}, "invalid_field", "/overlap"),
        ({"every": 60}, "unknown_field", "/every"),
        ({"task": {"kind": "a b"}}, "invalid_field", "/task/kind"),
        ({"task": {"kind": "audit", "id": "x"}}, "invalid_field", "/task/id"),
        ({"task": {"kind": "audit", "lease_s": 1}}, "lease_too_short", "/task/lease_s"),
        ({"task": {"kind": "audit", "not_before": "2030-01-01T00:00:00Z"}}, "invalid_field", "/task/not_before"),
        ({"task": {"kind": "audit", "payload": "x" * 20_000}}, "too_large", "/task/payload"),
        ({"task": {}}, "invalid_field", "/task/kind"),
    ],
)
def test_i1_what_is_refused_names_its_field(site: Site, change: dict[str, Any], reason: str, field: str) -> None:
    """I1: a bad pattern, an unknown zone, an interval too short, a task that cannot be: reason and field."""
    put(site, "fine", YEARLY)
    body = {name: value for name, value in (YEARLY | change).items() if value is not None}
    problem = put(site, "refused", body).json()
    assert (problem["reason"], problem.get("field")) == (reason, field), problem
    assert site.client.get(f"{PATH}/refused").status_code == 404


def test_names_of_schedules(site: Site) -> None:
    """At most 100 characters, and no mark."""
    assert put(site, "n" * 101, YEARLY).json()["reason"] == "invalid_field"
    assert put(site, "a@b", YEARLY).json()["reason"] == "invalid_field"
    answer = site.client.post("/v1/pools/hall-a/tasks", json={"kind": "weld", "id": "a@20260101T000000Z"})
    assert (answer.json()["reason"], answer.json()["field"]) == ("invalid_field", "/id")


def test_it_fires_in_real_time(site: Site) -> None:
    """Every second, through owner, log and tables; each instant once or counted."""
    put(site, "tick", {"every_s": 1, "overlap": "allow", "task": {"kind": "tick"}})
    until(lambda: site.client.get(f"{PATH}/tick").json().get("fired", 0) >= 2, "two firings")
    shown = site.client.get(f"{PATH}/tick").json()
    site.client.request("DELETE", f"{PATH}/tick")
    found = site.client.get("/v1/tasks", params={"where": "schedule=tick"}).json()["items"]
    assert len({item["id"] for item in found}) == len(found) >= shown["fired"]
    assert (
        shown["last_fired"]["task"] == f"tick@{shown['last_fired']['instant'][:19].replace('-', '').replace(':', '')}Z"
    )
