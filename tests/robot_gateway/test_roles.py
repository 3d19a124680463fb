"""Who may do what: every role against every kind of path, with real tokens."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from robot_gateway.tokens import Role, new_token, write_tokens
from tests.support.site import Site

ROLES: tuple[Role, ...] = ("robot", "submitter", "operator", "auditor", "viewer")


class Guarded:
    """A site with one token for each role, all for pool hall-a; `other` is a second submitter, `far` an operator of
    another pool."""

    def __init__(self, site: Site, tokens: dict[str, str]) -> None:
        self.site = site
        self.tokens = tokens

    def ask(self, role: str, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.tokens[role]}"} if role else {}
        return self.site.client.request(method, path, headers=headers, **more)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """With one task that `submitter` submitted and a robot completed, and one that waits."""
    path: Path = tmp_path_factory.mktemp("tokens") / "tokens.toml"
    made: dict[str, Any] = {role: new_token(role, role, pools=["hall-a"]) for role in ROLES}
    made["other"] = new_token("other", "submitter", pools=["hall-*"])
    made["far"] = new_token("far", "operator", pools=["yard"])
    made["stranger"] = new_token("stranger", "robot", pools=["hall-a"], robots=["x*"])
    write_tokens(path, [entry for _, entry in made.values()])
    with Site(partitions=2, tokens=path, after_wait_s=1.0) as site:
        guarded = Guarded(site, {name: token for name, (token, _) in made.items()})
        assert guarded.ask("operator", "POST", "/v1/pools", json={"pool": "hall-a"}).status_code == 201
        assert guarded.ask("far", "POST", "/v1/pools", json={"pool": "yard"}).status_code == 201
        body = {"id": "done", "kind": "weld", "payload": {"secret": 1}}
        assert guarded.ask("submitter", "POST", "/v1/pools/hall-a/tasks", json=body).status_code == 201
        with site.robot("r1", token=guarded.tokens["robot"]) as robot:
            robot.hello()
            robot.ask("ready", n=1)
            assign = robot.expect("assign")
            here = {"task": "done", "attempt": assign["attempt"]}
            robot.ask("accept", **here)
            robot.ask("checkpoint", **here, number=1, value={"secret": 2})
            robot.ask("complete", **here, result={"secret": 3})
            robot.ask("ready", n=0)
        body = {"id": "open", "kind": "weld"}
        waits = guarded.ask("submitter", "POST", "/v1/pools/hall-a/tasks", json=body)
        after = {"after": waits.json()["position"]}
        assert guarded.ask("auditor", "GET", "/v1/pools/hall-a/tasks/open", params=after).status_code == 200
        yield guarded


TASK = "/v1/pools/hall-a/tasks/done"
ALLOWED: list[tuple[str, str, set[str]]] = [
    ("GET", TASK, {"submitter", "operator", "auditor", "viewer"}),
    ("GET", f"{TASK}/history", {"submitter", "operator", "auditor", "viewer"}),
    ("GET", f"{TASK}/why", {"submitter", "operator", "auditor", "viewer"}),
    ("GET", f"{TASK}/payload", {"robot", "submitter", "operator", "auditor"}),
    ("GET", f"{TASK}/result", {"robot", "submitter", "operator", "auditor"}),
    ("GET", f"{TASK}/checkpoints", {"robot", "submitter", "operator", "auditor"}),
    ("GET", f"{TASK}/checkpoints/1", {"robot", "submitter", "operator", "auditor"}),
    ("GET", "/v1/tasks", {"submitter", "other", "operator", "auditor", "viewer", "far"}),
    ("GET", "/v1/tasks/count", {"submitter", "other", "operator", "auditor", "viewer", "far"}),
    ("GET", "/v1/dead-letters", {"submitter", "other", "operator", "auditor", "viewer", "far"}),
    ("GET", "/v1/robots", {"operator", "auditor", "viewer", "far"}),
    ("GET", "/v1/pools", {"operator", "auditor", "viewer", "far"}),
    ("GET", "/v1/pools/hall-a", {"operator", "auditor", "viewer"}),
    ("GET", "/v1/pools/hall-a/targets", {"operator", "auditor", "viewer"}),
    ("GET", "/v1/pools/hall-a/limits", {"operator", "auditor", "viewer"}),
    ("PUT", "/v1/pools/hall-a/limits/kind/weld", {"operator"}),
    ("DELETE", "/v1/pools/hall-a/limits/kind/weld", {"operator"}),
    ("GET", "/v1/pools/hall-a/schedules", {"operator", "auditor", "viewer"}),
    ("GET", "/v1/pools/hall-a/schedules/s", {"operator", "auditor", "viewer"}),
    ("GET", "/v1/pools/hall-a/schedules/s/next", {"operator", "auditor", "viewer"}),
    ("PUT", "/v1/pools/hall-a/schedules/s", {"operator"}),
    ("POST", "/v1/pools/hall-a/schedules/s/pause", {"operator"}),
    ("POST", "/v1/pools/hall-a/schedules/s/resume", {"operator"}),
    ("POST", "/v1/pools/hall-a/schedules/s/fire", {"operator"}),
    ("DELETE", "/v1/pools/hall-a/schedules/s", {"operator"}),
    ("GET", "/v1/pools/hall-a/robots/r1", {"operator", "auditor", "viewer"}),
    ("GET", "/v1/events", {"operator", "auditor", "viewer", "far"}),
    ("GET", "/metrics", {"operator", "auditor", "viewer", "far"}),
    ("POST", f"{TASK}/cancel", {"submitter", "operator"}),
    ("POST", f"{TASK}/redrive", {"operator"}),
    ("POST", f"{TASK}/discard", {"operator"}),
    ("POST", f"{TASK}/resolve", {"operator"}),
    ("POST", f"{TASK}/release", {"operator"}),
    ("POST", f"{TASK}/pause", {"operator"}),
    ("PATCH", TASK, {"operator"}),
    ("POST", "/v1/clock/accept", set()),
    ("POST", "/v1/log/raise-format", set()),
    ("POST", "/v1/pools/hall-a/pause", {"operator"}),
    ("POST", "/v1/pools/hall-a/resume", {"operator"}),
    ("POST", "/v1/pools/hall-a/unfreeze", {"operator"}),
    ("POST", "/v1/pools/hall-a/kinds/weld/resume", {"operator"}),
    ("POST", "/v1/pools/hall-a/targets/t/resume", {"operator"}),
    ("POST", "/v1/pools/hall-a/robots/r1/undrain", {"operator"}),
    ("POST", "/v1/pools/hall-a/tasks", {"submitter", "other", "operator"}),
]


@pytest.mark.parametrize(("method", "path", "allowed"), ALLOWED)
def test_a_role_may_do_exactly_this(guarded: Guarded, method: str, path: str, allowed: set[str]) -> None:
    """Whoever else asks is told 403, and nobody without a token gets in."""
    for role in [*ROLES, "other", "far"]:
        body = {"reason": "x", "kind": "weld"} if path.endswith("/tasks") else {"reason": "x"}
        if path.endswith("/tasks"):
            del body["reason"]
        answer = guarded.ask(role, method, path, **({} if method == "GET" else {"json": body}))
        assert (answer.status_code != 403) is (role in allowed), (role, answer.text)
    assert guarded.ask("", method, path).status_code == 401


def test_open_paths_need_no_token(guarded: Guarded) -> None:
    """They tell nothing about tasks or robots."""
    for path in ("/healthz", "/readyz", "/v1/version", "/v1/problems/forbidden", "/openapi.json", "/docs"):
        assert guarded.ask("", "GET", path).status_code == 200
    refused = guarded.ask("", "GET", "/v1/tasks")
    assert refused.headers["WWW-Authenticate"] == "Bearer"


def test_lists_show_what_the_token_is_for(guarded: Guarded) -> None:
    """Submitters see their own tasks, others those of their pools."""

    def listed(role: str, path: str = "/v1/tasks", **params: Any) -> set[str]:
        answer = guarded.ask(role, "GET", path, params=params)
        return {item.get("id") or item["pool"] for item in answer.json()["items"]}

    assert {"done", "open"} <= listed("submitter")
    assert not {"done", "open"} & listed("other")
    assert {"done", "open"} <= listed("viewer")
    assert listed("far") == set()
    assert listed("far", where="pool=hall-a") == set()
    assert listed("far", "/v1/pools") == {"yard"}
    assert guarded.ask("far", "GET", "/v1/tasks/count").json()["count"] == 0


def test_viewers_see_no_bodies(guarded: Guarded) -> None:
    """Neither in history nor in events, and those of other pools not at all."""
    for path in (f"{TASK}/history", "/v1/events"):
        viewer = guarded.ask("viewer", "GET", path, params={"limit": 1000})
        auditor = guarded.ask("auditor", "GET", path, params={"limit": 1000})
        assert "secret" in auditor.text
        assert "secret" not in viewer.text
        assert [e["id"] for e in viewer.json()["items"]] == [e["id"] for e in auditor.json()["items"]]
    assert {e["pool"] for e in guarded.ask("far", "GET", "/v1/events").json()["items"]} == {"yard"}


def test_a_robot_reads_what_it_works_on_and_nothing_else(guarded: Guarded) -> None:
    """Payload of the task that it holds or held last; not that of others."""
    assert guarded.ask("robot", "GET", f"{TASK}/payload").json() == {"secret": 1}
    assert guarded.ask("stranger", "GET", f"{TASK}/payload").status_code == 403
    assert guarded.ask("robot", "GET", "/v1/pools/hall-a/tasks/open/payload").status_code == 403


def test_with_tokens_a_pool_is_not_made_by_its_name(guarded: Guarded) -> None:
    """A mistyped name must not become a queue that nobody serves."""
    answer = guarded.ask("other", "POST", "/v1/pools/hall-x/tasks", json={"kind": "weld"})
    assert (answer.status_code, answer.json()["reason"]) == (404, "no_such_pool")


def test_a_task_that_is_not_there_yet_is_waited_for(guarded: Guarded) -> None:
    """A submitter may cancel what it has just submitted, although the tables come a little later."""
    for n in range(5):
        body = {"id": f"quick-{n}", "kind": "weld"}
        assert guarded.ask("submitter", "POST", "/v1/pools/hall-a/tasks", json=body).status_code == 201
        answer = guarded.ask("submitter", "POST", f"/v1/pools/hall-a/tasks/quick-{n}/cancel")
        assert answer.json()["state"] == "CANCELLED"
