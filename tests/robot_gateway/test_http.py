"""HTTP: submissions and verbs with their command ids, and every "no" in one shape."""

import http.client
import json
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from commands.reasons import REASONS
from robot_gateway import gateway
from tests.support.site import Site, until


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Real owners and tables."""
    with Site(partitions=2) as running:
        yield running


def problem_of(answer: httpx.Response) -> dict[str, Any]:
    """The problem in an answer; every member that must be there is."""
    assert answer.headers["Content-Type"] == "application/problem+json", answer.text
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == answer.status_code
    assert REASONS[problem["reason"]].status in (answer.status_code, 0)
    assert problem["type"] == f"/v1/problems/{problem['reason']}"
    assert problem["request_id"] == answer.headers["X-Request-Id"]
    assert problem["title"]
    assert problem["detail"]
    assert problem["retryable"] is REASONS[problem["reason"]].retryable
    return problem


# ---- the one shape of errors ----


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", "/", 404, "no_such_route"),
        ("GET", "/v1/nothing", 404, "no_such_route"),
        ("GET", "/v1/problems/nonsense", 404, "no_such_route"),
        ("DELETE", "/v1/tasks", 405, "method_not_allowed"),
        ("PUT", "/v1/pools/hall-a/tasks", 405, "method_not_allowed"),
        ("GET", "/v1/pools/a%20b", 422, "invalid_field"),
        ("GET", "/v1/pools/hall-a/tasks/_x", 422, "invalid_field"),
        ("GET", f"/v1/pools/hall-a/tasks/{'t' * 129}", 422, "invalid_field"),
        ("GET", "/v1/tasks?limit=0", 422, "invalid_field"),
        ("GET", "/v1/tasks?limit=1001", 422, "invalid_field"),
        ("GET", "/v1/tasks?limit=x", 422, "invalid_field"),
        ("GET", "/v1/tasks?limt=5", 422, "unknown_field"),
        ("GET", "/v1/tasks?cursor=nonsense", 400, "bad_cursor"),
        ("GET", "/v1/tasks?where=stat%3DDEAD", 400, "bad_filter"),
        ("GET", "/v1/tasks?sort=nonsense", 400, "bad_filter"),
        ("GET", "/v1/tasks?after=nonsense", 400, "unknown_position"),
        ("GET", "/v1/tasks?after=00000000~0:1", 400, "unknown_position"),
        ("GET", "/v1/pools/nowhere", 404, "no_such_pool"),
        ("GET", "/v1/pools/hall-a/tasks/nothing", 404, "no_such_task"),
        ("GET", "/v1/pools/hall-a/tasks/nothing/result", 404, "no_such_task"),
        ("GET", "/v1/pools/hall-a/tasks/nothing/history", 404, "no_such_task"),
        ("GET", "/v1/pools/hall-a/tasks/nothing/checkpoints", 404, "no_such_task"),
        ("GET", "/v1/pools/hall-a/tasks/nothing/why", 404, "no_such_task"),
        ("GET", "/v1/pools/hall-a/robots/nobody", 404, "no_such_robot"),
        ("POST", "/v1/pools/hall-a/robots/nobody/drain", 404, "no_such_robot"),
        ("GET", "/v1/pools/hall-a/targets/nothing", 404, "no_such_target"),
        ("GET", "/v1/events?types=TaskAsigned", 422, "invalid_field"),
        ("GET", "/v1/events?from=yesterday", 422, "invalid_field"),
        ("GET", "/v1/events?where=pool=_log-99", 404, "no_such_pool"),
        ("GET", "/v1/events?cursor=x", 400, "bad_cursor"),
        ("GET", "/v1/stream?where=nonsense", 400, "bad_filter"),
    ],
)
def test_every_no_is_a_problem(site: Site, method: str, path: str, status: int, reason: str) -> None:
    """Also those of the framework; none has a shape of its own."""
    site.submit()
    answer = site.client.request(method, path)

    problem = problem_of(answer)
    assert (answer.status_code, problem["reason"]) == (status, reason)


@pytest.mark.parametrize(
    ("content", "kind", "reason", "field"),
    [
        (b"{", "application/json", "malformed_json", None),
        (b"", None, "malformed_json", None),
        (b'{"kind":"x"}', "text/plain", "unsupported_media_type", None),
        (b'{"kind":"x"}', None, "unsupported_media_type", None),
        (b'{"kind":"x","knd":1}', "application/json; charset=utf-8", "unknown_field", "/knd"),
        (b'{"kind":"x","payload":NaN}', "application/json", "malformed_json", "/payload"),
        (b'{"kind":"x","payload":"\\ud800"}', "application/json", "invalid_field", "/payload"),
        (b'{"kind":"x","payload":' + b"[" * 64 + b"]" * 64 + b"}", "application/json", "invalid_field", None),
        (b'{"kind":"x","payload":"' + b"x" * 262_143 + b'"}', "application/json", "too_large", "/payload"),
        (b'{"kind":"x","payload":"' + b"x" * 400_000 + b'"}', "application/json", "too_large", None),
        (b'{"kind":"x","payload":"' + b"x" * 5_000_000 + b'"}', "application/json", "too_large", None),
        (b'{"tasks":[]}', "application/json", "invalid_field", "/tasks"),
    ],
)
def test_bodies_are_read_strictly(site: Site, content: bytes, kind: str | None, reason: str, field: str | None) -> None:
    """Media type, JSON, limits and size, each with its reason."""
    answer = site.client.post(
        "/v1/pools/hall-a/tasks", content=content, headers={} if kind is None else {"Content-Type": kind}
    )

    problem = problem_of(answer)
    assert problem["reason"] == reason
    if field is not None:
        assert problem["field"] == field


def test_request_ids_are_kept_or_made(site: Site) -> None:
    """One that was sent comes back; an indecent one is replaced."""
    sent = site.client.get("/healthz", headers={"X-Request-Id": "abc.1"})
    assert sent.headers["X-Request-Id"] == "abc.1"
    assert len(site.client.get("/healthz").headers["X-Request-Id"]) == 32
    replaced = site.client.get("/healthz", headers={"X-Request-Id": "a b\tc"})
    assert len(replaced.headers["X-Request-Id"]) == 32


def test_pages_and_names_of_others_are_kept_out(site: Site) -> None:
    """Origin and Host of web pages that are not ours."""
    assert problem_of(site.client.get("/v1/tasks", headers={"Origin": "http://evil.example"}))["reason"] == "forbidden"
    assert problem_of(site.client.get("/v1/tasks", headers={"Host": "evil.example"}))["reason"] == "forbidden"
    assert problem_of(site.client.get("/v1/tasks", headers={"Origin": "null"}))["reason"] == "forbidden"
    assert site.client.get("/v1/tasks", headers={"Origin": site.url}).status_code == 200
    assert site.client.get("/v1/tasks", headers={"Host": "localhost:1"}).status_code == 200
    with Site(scripted=True, projector=False, origins=["https://console.example"]) as open_to:
        allowed = open_to.client.get("/v1/version", headers={"Origin": "https://console.example"})
        assert allowed.headers["Access-Control-Allow-Origin"] == "https://console.example"


def test_a_fault_inside_shows_no_traceback(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 internal with the request id, and nothing of the inside."""

    def broken() -> Any:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(site.gateway, "readiness", broken)
    answer = site.client.get("/readyz")
    problem = problem_of(answer)
    assert (answer.status_code, problem["reason"], problem["retryable"]) == (500, "internal", True)
    assert "secret" not in answer.text


def test_rubbish_on_the_wire_harms_nobody(site: Site) -> None:
    """What is no HTTP is answered and cut; the next request is served."""
    connection = http.client.HTTPConnection(site.url.removeprefix("http://"), timeout=60)
    connection.putrequest("GET", "/healthz", skip_host=True)
    connection.endheaders()
    assert connection.getresponse().status == 400
    connection.close()
    assert site.client.get("/healthz").status_code == 200


# ---- submissions ----


def test_the_same_command_id_is_the_same_submission(site: Site) -> None:
    """201, then 201 again with the same task; other content under it is a conflict."""
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    first = site.client.post("/v1/pools/hall-a/tasks", json={"kind": "weld"}, headers=headers)
    again = site.client.post("/v1/pools/hall-a/tasks", json={"kind": "weld"}, headers=headers)
    other = site.client.post("/v1/pools/hall-a/tasks", json={"kind": "paint"}, headers=headers)

    assert first.status_code == 201
    assert first.headers["Idempotency-Key"] == headers["Idempotency-Key"]
    assert first.headers["Fleetlog-Position"] == first.json()["position"]
    assert again.json()["id"] == first.json()["id"]
    problem = problem_of(other)
    assert (other.status_code, problem["reason"]) == (409, "command_id_conflict")
    assert problem["command_id"] == headers["Idempotency-Key"]


def test_the_same_task_id_is_the_same_task(site: Site) -> None:
    """201, then 200 with `changed: false`; with other content id_conflict. A command id is made and returned."""
    first = site.client.post("/v1/pools/hall-a/tasks", json={"id": "mine", "kind": "weld"})
    again = site.client.post("/v1/pools/hall-a/tasks", json={"id": "mine", "kind": "weld"})
    other = site.client.post("/v1/pools/hall-a/tasks", json={"id": "mine", "kind": "paint"})

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["changed"] is False
    assert str(uuid.UUID(first.headers["Idempotency-Key"])) == first.headers["Idempotency-Key"]
    assert (problem_of(other)["reason"], problem_of(other)["field"]) == ("id_conflict", "/id")


def test_a_command_id_is_a_uuid(site: Site) -> None:
    """So that nobody meets another's by chance."""
    answer = site.client.post("/v1/pools/hall-a/tasks", json={"kind": "x"}, headers={"Idempotency-Key": "1"})
    assert problem_of(answer)["field"] == "/Idempotency-Key"


def test_many_tasks_at_once(site: Site) -> None:
    """Each is decided alone; what is malformed refuses the request before anything is sent."""
    site.submit("hall-m", id="taken")
    key = {"Idempotency-Key": str(uuid.uuid4())}
    body = {"tasks": [{"kind": "a"}, {"id": "taken", "kind": "other"}, {"id": "taken", "kind": "weld"}]}
    answer = site.client.post("/v1/pools/hall-m/tasks", json=body, headers=key)

    assert answer.status_code == 200
    entries = answer.json()["tasks"]
    assert [entry["status"] for entry in entries] == [201, 409, 200]
    assert entries[1]["problem"]["command_id"] == f"{key['Idempotency-Key']}/1"
    again = site.client.post("/v1/pools/hall-m/tasks", json=body, headers=key)
    assert again.json()["tasks"][0]["task"]["id"] == entries[0]["task"]["id"]

    broken = site.client.post("/v1/pools/hall-m/tasks", json={"tasks": [{"id": "b1", "kind": "a"}, {"kind": 5}]})
    assert problem_of(broken)["field"] == "/tasks/1/kind"
    assert site.client.get("/v1/pools/hall-m/tasks/b1", params={"after": again.json()["position"]}).status_code == 404


def test_all_or_none(site: Site) -> None:
    """One command in one record: nothing of it where one task cannot be, and at most 900 KB."""
    site.submit("hall-n", id="taken")
    body = {"tasks": [{"id": "n1", "kind": "a"}, {"id": "taken", "kind": "other"}]}
    refused = site.client.post("/v1/pools/hall-n/tasks?all_or_none=true", json=body)
    assert (problem_of(refused)["reason"], problem_of(refused)["field"]) == ("id_conflict", "/tasks/1/id")

    body = {"tasks": [{"id": "n1", "kind": "a"}, {"id": "n2", "kind": "b"}]}
    done = site.client.post("/v1/pools/hall-n/tasks?all_or_none=true", json=body)
    assert [entry["task"]["id"] for entry in done.json()["tasks"]] == ["n1", "n2"]
    large = {"tasks": [{"kind": "a", "payload": "x" * 250_000}] * 4}
    assert problem_of(site.client.post("/v1/pools/hall-n/tasks?all_or_none=true", json=large))["reason"] == "too_large"
    assert site.client.post("/v1/pools/hall-n/tasks", json=large).status_code == 200


def test_nobody_who_can_is_said_at_once(site: Site) -> None:
    """The task waits all the same."""
    task = site.submit("hall-u", requirement=["gpu"], slot_cost=3)
    assert task["unsatisfiable"] == ["gpu", "kind:weld", "slots>=3"]
    assert task["state"] == "WAITING"


# ---- verbs ----


def test_verbs_on_a_waiting_task(site: Site) -> None:
    """Change, pause, resume, cancel; what is in place already changes nothing; what is not allowed lists what is."""
    task = site.submit("hall-v")["id"]
    path = f"/v1/pools/hall-v/tasks/{task}"

    changed = site.client.patch(path, json={"priority": 7, "labels": {"a": "b"}, "reason": "urgent"})
    assert (changed.status_code, changed.json()["changed"]) == (200, True)
    shown = site.client.get(path, params={"after": changed.json()["position"]}).json()
    assert (shown["priority"], shown["labels"]) == (7, {"a": "b"})

    assert site.client.post(f"{path}/pause", json={"reason": "later"}).json()["changed"] is True
    assert site.client.post(f"{path}/pause").json()["changed"] is False
    why = site.client.get(f"{path}/why").json()
    assert next(hold["reason"] for hold in why["holds"]) == "task_paused"
    assert site.client.post(f"{path}/resume").json()["changed"] is True

    for verb in ("discard", "resolve", "release"):
        refused = problem_of(site.client.post(f"{path}/{verb}", json={"reason": "because"}))
        assert refused["reason"] == "wrong_state"
        assert refused["state"] == "WAITING"
        assert "cancel" in refused["allowed"]
    cancelled = site.client.post(f"{path}/cancel")
    assert (cancelled.json()["state"], cancelled.json()["changed"]) == ("CANCELLED", True)
    assert site.client.post(f"{path}/cancel").json()["changed"] is False
    assert problem_of(site.client.patch(path, json={"priority": 1}))["reason"] == "wrong_state"


def test_verbs_on_a_dead_letter(site: Site) -> None:
    """It is listed with its reason; redriven with changes, failed again, resolved with a result."""
    with site.robot("r1", "hall-d") as robot:
        robot.hello()
        robot.ask("ready", n=1)
        task = site.submit("hall-d", id="letter")["id"]
        path = f"/v1/pools/hall-d/tasks/{task}"

        def fail() -> None:
            assign = robot.expect("assign")
            here = {"task": task, "attempt": assign["attempt"]}
            robot.ask("accept", **here)
            robot.ask("fail", **here, **{"class": "fatal"}, error={"type": "E", "message": "no"})

        fail()
        site.wait_for_state(task, "DEAD", "hall-d")
        (letter,) = site.client.get("/v1/dead-letters", params={"where": "pool=hall-d reason=fatal"}).json()["items"]
        assert (letter["id"], letter["error"]["message"]) == (task, "no")

        assert problem_of(site.client.post(f"{path}/discard"))["reason"] == "reason_required"
        redriven = site.client.post(f"{path}/redrive", json={"reason": "again", "changed": {"priority": 3}})
        assert redriven.json()["state"] == "WAITING"
        fail()
        site.wait_for_state(task, "DEAD", "hall-d")
        done = site.client.post(f"{path}/resolve", json={"reason": "by hand", "result": {"ok": True}})
        assert done.json()["state"] == "COMPLETED"
        after = {"after": done.json()["position"]}
        assert site.client.get(f"{path}/result", params=after).json() == {"ok": True}


def test_release_takes_a_task_away(site: Site) -> None:
    """Its robot is told to stop; a reason is required."""
    with site.robot("r1", "hall-r") as robot:
        robot.hello()
        robot.ask("ready", n=1)
        task = site.submit("hall-r")["id"]
        assign = robot.expect("assign")
        robot.ask("accept", task=task, attempt=assign["attempt"])
        path = f"/v1/pools/hall-r/tasks/{task}/release"
        assert problem_of(site.client.post(path, json={}))["reason"] == "reason_required"
        assert site.client.post(path, json={"reason": "stuck", "force": True}).json()["state"] == "WAITING"
        assert robot.expect("stop")["reason"] == "released"


def test_verbs_on_robots(site: Site) -> None:
    """Drain and undrain change what the robot hears; retire closes its session."""
    with site.robot("r1", "hall-o") as robot:
        robot.hello()
        path = "/v1/pools/hall-o/robots/r1"
        drained = site.client.post(f"{path}/drain", json={"reason": "service"})
        assert (drained.json()["id"], drained.json()["changed"]) == ("r1", True)
        assert site.client.post(f"{path}/drain").json()["changed"] is False
        until(lambda: robot.ask("heartbeat", holding=[])["draining"])
        shown = site.client.get(path, params={"after": drained.json()["position"]}).json()
        assert shown["draining"]["reason"] == "service"
        assert site.client.post(f"{path}/undrain").json()["changed"] is True
        assert problem_of(site.client.post(f"{path}/clear"))["reason"] == "not_in_error"
        assert problem_of(site.client.post(f"{path}/retire"))["reason"] == "reason_required"
        assert site.client.post(f"{path}/retire", json={"reason": "sold"}).json()["changed"] is True
        assert robot.expect_closed().code == 4004


def test_pools(site: Site) -> None:
    """Created with settings in seconds, shown, changed; impossible ones are refused by the names used outside."""
    created = site.client.post("/v1/pools", json={"pool": "hall-p", "settings": {"window_s": 1, "lease_s": 3}})
    assert (created.status_code, created.json()["changed"]) == (201, True)
    again = site.client.post("/v1/pools", json={"pool": "hall-p"})
    assert (again.status_code, again.json()["changed"]) == (200, False)
    after = {"after": created.json()["position"]}
    shown = site.client.get("/v1/pools/hall-p", params=after).json()
    assert (shown["settings"]["window_s"], shown["settings"]["lease_s"], shown["settings"]["pass"]) == (1, 3, "higher")
    assert (shown["tasks"], shown["kinds"]) == ({}, [])

    changed = site.client.patch("/v1/pools/hall-p", json={"settings": {"failures_max": 9}, "reason": "patience"})
    assert changed.json()["changed"] is True
    for settings, reason, field in (
        ({"window_s": 0.9}, "impossible_settings", "/settings"),
        ({"accept_s": 0.4}, "impossible_settings", "/settings"),
        ({"window_s": 7}, "impossible_settings", "/settings/window_s"),
        ({"lease_s": 2}, "impossible_settings", "/settings/lease_s"),
        ({"failures_max": 0}, "invalid_field", "/settings/failures_max"),
        ({"windw_s": 1}, "unknown_field", "/settings/windw_s"),
    ):
        problem = problem_of(site.client.patch("/v1/pools/hall-p", json={"settings": settings}))
        assert (problem["reason"], problem["field"]) == (reason, field)
        assert "_ms" not in problem["detail"]
    names = [pool["pool"] for pool in site.client.get("/v1/pools", params={"limit": 1000}).json()["items"]]
    assert "hall-p" in names
    assert names == sorted(names)
    assert problem_of(site.client.post("/v1/pools/hall-p/unfreeze", json={"reason": "x"}))["reason"] == "not_frozen"


def test_pausing_pools_kinds_and_targets(site: Site) -> None:
    """Each by its path; `why` names them all."""
    task = site.submit("hall-q", target="dock-7")["id"]
    until_then = {"until": "2999-01-01T00:00:00Z"}
    for path in ("", "/kinds/weld"):
        assert site.client.post(f"/v1/pools/hall-q{path}/pause", json=until_then).json()["changed"] is True
    paused = site.client.post("/v1/pools/hall-q/targets/dock-7/pause", json=until_then)
    assert paused.json()["changed"] is True
    why = site.client.get(f"/v1/pools/hall-q/tasks/{task}/why").json()
    assert [hold["reason"] for hold in why["holds"]][:3] == ["pool_paused", "kind_paused", "target_paused"]
    after = {"after": paused.json()["position"]}
    target = site.client.get("/v1/pools/hall-q/targets/dock-7", params=after).json()
    assert (target["name"], target["waiting"]) == ("dock-7", 1)
    assert target["paused"]["until"].startswith("2999-01-01T00:00:00")
    assert site.client.get("/v1/pools/hall-q/targets").json()["items"][0]["name"] == "dock-7"
    for path in ("", "/kinds/weld", "/targets/dock-7"):
        assert site.client.post(f"/v1/pools/hall-q{path}/resume").json()["changed"] is True


# ---- lists ----


def test_lists_go_page_by_page(site: Site) -> None:
    """Every task once, in order, whatever the size of a page; a cursor belongs to its list."""
    ids = [site.submit("hall-l", id=f"t{n:02}", priority=n % 3)["id"] for n in range(25)]
    position = site.submit("hall-l", id="t99", kind="paint")["position"]

    seen: list[str] = []
    params: dict[str, Any] = {"where": "pool=hall-l kind=weld", "sort": "submitted", "limit": 10, "after": position}
    while True:
        answer = site.client.get("/v1/tasks", params=params)
        assert answer.headers["Fleetlog-Position"] == answer.json()["position"]
        seen += [task["id"] for task in answer.json()["items"]]
        if answer.json()["next"] is None:
            break
        params["cursor"] = answer.json()["next"]
    assert seen == ids
    other = {**params, "where": "pool=hall-l"}
    assert problem_of(site.client.get("/v1/tasks", params=other))["reason"] == "bad_cursor"
    count = site.client.get("/v1/tasks/count", params={"where": "pool=hall-l priority>=1"}).json()
    assert (count["count"], count["complete"]) == (16, True)


def test_robots_are_listed(site: Site) -> None:
    """By filter, with their state."""
    with site.robot("ra", "hall-k") as a, site.robot("rb", "hall-k") as b:
        a.hello(capabilities=["gpu"])
        b.hello(capabilities=["cpu"])

        def listed(where: str) -> list[str]:
            return [r["id"] for r in site.client.get("/v1/robots", params={"where": where}).json()["items"]]

        until(lambda: listed("pool=hall-k") == ["ra", "rb"])
        assert listed("pool=hall-k capability=gpu state=IDLE") == ["ra"]


# ---- readiness, answers that do not come, tables that are behind ----


def test_positions_that_the_tables_have_not_reached() -> None:
    """503 `behind` with the position reached, after the wait; the read without a position is answered."""
    with Site(partitions=1, after_wait_s=0.3) as site:
        task = site.submit()
        ahead = task["position"].replace(f"@{task['sequence']}", "@999999")
        answer = site.client.get(f"/v1/pools/hall-a/tasks/{task['id']}", params={"after": ahead})
        problem = problem_of(answer)
        assert (answer.status_code, problem["reason"]) == (503, "behind")
        assert answer.headers["Retry-After"] == "1"
        assert problem["position"].startswith(site.store.log_id[:8])
        assert site.task(task["id"])["state"] == "WAITING"


def test_a_gateway_without_tables_is_not_ready() -> None:
    """It says so in /readyz, line by line, and for each read; submissions go through."""
    with Site(scripted=True, projector=False) as site:
        ready = site.client.get("/readyz")
        lines = dict(line.split(": ", 1) for line in ready.text.splitlines())
        assert ready.status_code == 503
        assert lines["outcomes"] == "ready"
        assert lines["tables"] != "ready"
        answer = site.client.get("/v1/tasks")
        assert (answer.status_code, problem_of(answer)["reason"]) == (503, "not_ready")
        assert site.client.post("/v1/pools/p/tasks", json={"kind": "x"}).status_code == 201


def test_an_owner_that_does_not_answer() -> None:
    """504 no_answer with the command id; asking again with it is answered."""
    with Site(scripted=True, projector=False, partitions=1) as site:
        answering, site.owner.on_command = site.owner.on_command, lambda command: None
        site.gateway.pending._timeout_s = 0.2
        key = {"Idempotency-Key": str(uuid.uuid4())}
        answer = site.client.post("/v1/pools/p/tasks", json={"kind": "x"}, headers=key)
        problem = problem_of(answer)
        assert (answer.status_code, problem["reason"], problem["retryable"]) == (504, "no_answer", True)
        assert problem["command_id"] == key["Idempotency-Key"]
        site.owner.on_command = answering
        site.gateway.pending._timeout_s = 30
        assert site.client.post("/v1/pools/p/tasks", json={"kind": "x"}, headers=key).status_code == 201


def test_a_log_that_is_away_or_busy() -> None:
    """503 log_unavailable, 429 gateway_busy: both with a time to come back."""
    with Site(scripted=True, projector=False, partitions=1) as site:
        site.store.away = True
        answer = site.client.post("/v1/pools/p/tasks", json={"kind": "x"})
        assert (answer.status_code, problem_of(answer)["reason"]) in ((503, "log_unavailable"), (503, "not_ready"))
        assert answer.headers["Retry-After"]
        site.store.away = False
        until(lambda: site.gateway.follower.problem is None)
        site.store._held_bytes_max = 0
        site.store.hold()
        answer = site.client.post("/v1/pools/p/tasks", json={"kind": "x"})
        assert (answer.status_code, problem_of(answer)["reason"]) == (429, "gateway_busy")
        site.store.release()


def test_submissions_may_be_stopped_while_the_rest_goes_on() -> None:
    """A disk that fills up: no new tasks, everything else is taken."""
    with Site(partitions=1) as site:
        task = site.submit()["id"]
        site.gateway.submissions_stopped = lambda: "the disk is nearly full: free some space"
        answer = site.client.post("/v1/pools/hall-a/tasks", json={"kind": "x"})
        assert (answer.status_code, problem_of(answer)["reason"]) == (503, "not_ready")
        assert "free some space" in answer.json()["detail"]
        assert site.client.post(f"/v1/pools/hall-a/tasks/{task}/cancel").status_code == 200


# ---- pages about the gateway itself ----


def test_what_the_gateway_says_about_itself(site: Site) -> None:
    """Version, reasons, figures."""
    version = site.client.get("/v1/version").json()
    assert (version["log_id"], version["partitions"]) == (site.store.log_id, 2)
    for word, reason in REASONS.items():
        shown = site.client.get(f"/v1/problems/{word}").json()
        assert (shown["reason"], shown["retryable"], shown["remedy"]) == (word, reason.retryable, reason.remedy)
    site.submit("hall-a", id="secret-task", target="secret-target")
    metrics = site.client.get("/metrics").text
    assert "fleetlog_gateway_requests_total{" in metrics
    assert "fleetlog_gateway_sessions 0.0" in metrics
    assert "secret" not in metrics
    assert json.loads(site.client.get("/openapi.json").text)["info"]["title"] == "Fleetlog"


def test_a_gateway_that_stops_answers_whoever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command without an answer gets no_answer, a wait for a task's end the task as it stands; nobody hangs."""
    monkeypatch.setattr(gateway, "LAST_ANSWERS_S", 0.1)
    answers: dict[str, httpx.Response] = {}
    with Site(partitions=1) as site:
        url, task = site.url, site.submit()["id"]
        site.processor.close()

        def ask(name: str, method: str, path: str, **more: Any) -> threading.Thread:
            def run() -> None:
                answers[name] = httpx.request(method, url + path, timeout=60, **more)

            thread = threading.Thread(target=run)
            thread.start()
            return thread

        path = f"/v1/pools/hall-a/tasks/{task}"
        threads = [ask("wait", "GET", f"{path}?wait_s=60"), ask("cancel", "POST", f"{path}/cancel")]
        until(lambda: len(site.gateway.pending) == 1 and site.gateway.reads._ended_watch._waiting)
    for thread in threads:
        thread.join(60)
    assert (answers["wait"].status_code, answers["wait"].json()["state"]) == (200, "WAITING")
    assert problem_of(answers["cancel"])["reason"] == "no_answer"
