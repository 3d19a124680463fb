"""Bulk work over HTTP: dry run, token, the act on exactly what was found, once, whatever ends meanwhile."""

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from commands.reasons import Refusal
from robot_gateway import bulk, bulk_folder
from robot_gateway.bulk_folder import BulkFolder
from robot_gateway.event_views import now_ms
from robot_gateway.gateway import Gateway
from robot_gateway.serve import Served
from robot_gateway.tokens import new_token, write_tokens
from streams.memory_log import MemoryLog
from streams.port import Topic
from tests.support.site import CEILING_S, Site, until

GOING_ON = "going_on"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Real owners and tables."""
    with Site(partitions=2) as running:
        yield running


@pytest.fixture
def pool() -> str:
    """A pool that nobody has used."""
    return f"p-{uuid.uuid4().hex[:8]}"


def fill(site: Site, pool: str, count: int, **task: Any) -> str:
    """Submits tasks t0, t1 ...; the position behind them."""
    position = ""
    for start in range(0, count, 500):
        tasks = [{"kind": "weld", "id": f"t{n}", **task} for n in range(start, min(start + 500, count))]
        answer = site.client.post(f"/v1/pools/{pool}/tasks", json={"tasks": tasks})
        assert answer.status_code == 200, answer.text
        position = answer.json()["position"]
    return position


def dry_run(site: Site, verb: str, pool: str, where: str = "", after: str | None = None) -> dict[str, Any]:
    """The answer to a dry run."""
    asked = {"verb": verb, "pool": pool, "filter": where, "dry_run": True}
    answer = site.client.post("/v1/bulk", json=asked, params={"after": after} if after else {})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def act(site: Site, verb: str, token: str, **more: Any) -> dict[str, Any]:
    """The work that the act begins."""
    answer = site.client.post("/v1/bulk", json={"verb": verb, "token": token, **more})
    assert answer.status_code == 202, answer.text
    assert answer.headers["Location"] == f"/v1/bulk/{token}"
    return dict(answer.json())


def over(client: httpx.Client, token: str) -> dict[str, Any]:
    """The work when it is over."""

    def look() -> dict[str, Any] | None:
        work = client.get(f"/v1/bulk/{token}").json()
        return dict(work) if work["state"] != GOING_ON else None

    found: dict[str, Any] = until(look, "the end of the work")
    return found


def events(site: Site, pool: str, name: str) -> list[dict[str, Any]]:
    """The pool's events of one type, from the log."""
    with closing(MemoryLog(site.store).follow(Topic.EVENTS, dict.fromkeys(range(2), 0))) as follower:
        found = [json.loads(record.value) for record in follower.poll(1_000_000, 0) if record.key == pool]
    return [event for event in found if event["type"].startswith(f"{name}.")]


# ---- the dry run ----


def test_a_dry_run_counts_shows_ten_and_changes_nothing(site: Site, pool: str) -> None:
    """Count, states, ten examples and a token; tasks in states that do not fit are not in it."""
    after = fill(site, pool, 25)
    site.client.post(f"/v1/pools/{pool}/tasks/t3/cancel", json={})
    site.wait_for_state("t3", "CANCELLED", pool)
    found = dry_run(site, "cancel", pool, "kind=weld", after)

    assert (found["count"], found["states"], found["dry_run"]) == (24, {"WAITING": 24}, True)
    assert [example["id"] for example in found["examples"]] == ["t0", "t1", "t2", *(f"t{n}" for n in range(4, 11))]
    assert found["examples"][0] == {"id": "t0", "pool": pool, "kind": "weld", "state": "WAITING", "priority": 0}
    assert found["token"]
    assert len(events(site, pool, "TaskCancelled")) == 1
    assert site.client.get(f"/v1/bulk/{found['token']}").json()["reason"] == "no_such_bulk"


def test_the_selection_is_fixed(site: Site, pool: str) -> None:
    """A task that comes later is not touched, one that left the fitting states is refused and counted."""
    token = dry_run(site, "cancel", pool, "kind=weld", fill(site, pool, 4))["token"]
    site.submit(pool, id="later")
    site.client.post(f"/v1/pools/{pool}/tasks/t1/cancel", json={})
    act(site, "cancel", token, reason="ordered twice")
    work = over(site.client, token)

    assert (work["state"], work["done"], work["outcomes"]) == ("done", 4, {"CANCELLED": 3, "unchanged": 1})
    site.wait_for_state("t2", "CANCELLED", pool)
    assert site.task("later", pool)["state"] == "WAITING"
    assert {event["reason"] for event in events(site, pool, "TaskCancelled") if event["task"] != "t1"} == {
        "ordered twice"
    }


def test_what_no_longer_fits_is_counted_by_reason(site: Site, pool: str) -> None:
    """The owner decides about each task as it stands then."""
    token = dry_run(site, "change", pool, after=fill(site, pool, 3))["token"]
    site.client.post(f"/v1/pools/{pool}/tasks/t1/cancel", json={})
    act(site, "change", token, changed={"priority": 7})
    work = over(site.client, token)

    assert (work["outcomes"], work["refused"]) == ({"WAITING": 2}, {"wrong_state": 1})
    assert [(one["task"], one["reason"]) for one in work["refusals"]] == [("t1", "wrong_state")]
    assert until(lambda: site.task("t0", pool)["priority"] == 7)


def test_all_pools_or_one(site: Site) -> None:
    """Without a pool, those of the asker: here all that the filter names."""
    one, two = f"q-{uuid.uuid4().hex[:8]}", f"q-{uuid.uuid4().hex[:8]}"
    fill(site, one, 2, labels={"batch": one})
    after = fill(site, two, 3, labels={"batch": one})
    site.client.get("/v1/tasks", params={"after": after})
    asked = {"verb": "cancel", "filter": f"label.batch={one}", "dry_run": True}
    found = until(lambda: (f := site.client.post("/v1/bulk", json=asked).json())["count"] == 5 and f)
    act(site, "cancel", found["token"])

    assert over(site.client, found["token"])["outcomes"] == {"CANCELLED": 5}
    assert len(events(site, one, "TaskCancelled")) == 2


# ---- every verb ----


def test_every_verb(site: Site, pool: str) -> None:
    """change, pause, resume, release, cancel, redrive, resolve and discard, each on what fits it."""
    after = fill(site, pool, 6)

    def do(verb: str, where: str, **more: Any) -> dict[str, int]:
        found = until(lambda: (f := dry_run(site, verb, pool, where, after))["count"] and f, f"tasks for {verb}")
        act(site, verb, found["token"], **more)
        return dict(over(site.client, found["token"])["outcomes"])

    assert do("change", "id=t*", changed={"labels": {"line": "3"}, "not_before": "2026-01-01T00:00:00Z"}) == {
        "WAITING": 6
    }
    assert do("pause", "id=t5", until="2099-01-01T00:00:00Z") == {"paused": 1}
    assert site.task("t5", pool)["paused"]["until"] == "2099-01-01T00:00:00.000Z"
    assert do("resume", "paused=true") == {"resumed": 1}
    with site.robot("r1", pool) as robot:
        robot.hello(slots=4)
        robot.ask("ready", n=4)
        held = {given["task"]: given["attempt"] for given in (robot.expect("assign") for _ in range(4))}
        robot.ask("ready", n=0)
        for task, attempt in held.items():
            robot.ask("accept", task=task, attempt=attempt)
        dead = list(held)[:3]
        for task in dead:
            error = {"type": "Link", "message": "down"}
            robot.ask("fail", task=task, attempt=held[task], **{"class": "fatal"}, error=error)
        assert do("release", "state=RUNNING", reason="stuck", force=True) == {"WAITING": 1}
        assert do("redrive", f"id={dead[0]}", reason="again", changed={"priority": 9}) == {"WAITING": 1}
        assert do("resolve", f"id={dead[1]}", reason="by hand", result={"ok": True}) == {"COMPLETED": 1}
        assert do("discard", "reason=fatal", reason="no longer needed") == {"DISCARDED": 1}
        assert do("cancel", "") == {"CANCELLED": 4}
    assert site.client.get(f"/v1/pools/{pool}/tasks/{dead[1]}/result").json() == {"ok": True}
    assert {event["task"] for event in events(site, pool, "TaskReleased")} == {list(held)[3]}
    assert site.task(dead[0], pool)["priority"] == 9


# ---- tokens and requests that are refused ----


@pytest.mark.parametrize(
    ("asked", "status", "reason", "field"),
    [
        ({"verb": "cancel"}, 422, "invalid_field", "/token"),
        ({"verb": "cancel", "dry_run": True, "token": "x"}, 422, "invalid_field", "/token"),
        ({"verb": "cancel", "token": "nonsense"}, 409, "token_stale", "/token"),
        ({"verb": "cancel", "token": str(uuid.uuid4())}, 409, "token_stale", "/token"),
        ({"verb": "discard", "token": "x"}, 422, "reason_required", "/reason"),
        ({"verb": "release", "token": "x"}, 422, "reason_required", "/reason"),
        ({"verb": "resolve", "token": "x"}, 422, "reason_required", "/reason"),
        ({"verb": "change", "token": "x"}, 422, "invalid_field", "/changed"),
        ({"verb": "change", "token": "x", "changed": {}}, 422, "invalid_field", "/changed"),
        ({"verb": "cancel", "dry_run": True, "force": True}, 422, "invalid_field", "/force"),
        ({"verb": "cancel", "token": "x", "changed": {"priority": 3}}, 422, "invalid_field", "/changed"),
        ({"verb": "redrive", "dry_run": True, "until": "2027-01-01T00:00:00Z"}, 422, "invalid_field", "/until"),
        ({"verb": "pause", "dry_run": True, "result": 1}, 422, "invalid_field", "/result"),
        ({"verb": "burn", "dry_run": True}, 422, "invalid_field", "/verb"),
        ({"verb": "cancel", "dryrun": True}, 422, "unknown_field", "/dryrun"),
        ({"verb": "cancel", "dry_run": True, "filter": "stat=DEAD"}, 400, "bad_filter", None),
        ({"verb": "cancel", "dry_run": True, "pool": "a b"}, 422, "invalid_field", "/pool"),
    ],
)
def test_what_is_wrong_is_refused(site: Site, asked: dict[str, Any], status: int, reason: str, field: str) -> None:
    """With the reason and the field."""
    answer = site.client.post("/v1/bulk", json=asked)
    assert (answer.status_code, answer.json()["reason"], answer.json().get("field")) == (status, reason, field)


def test_a_token_stands_for_its_dry_run_alone(site: Site, pool: str) -> None:
    """Another verb, pool or filter, or another reason the second time: token_stale. The same again: the same work."""
    token = dry_run(site, "cancel", pool, "kind=weld", fill(site, pool, 1))["token"]

    def reason_of(**asked: Any) -> str:
        answer = site.client.post("/v1/bulk", json={"verb": "cancel", "token": token, **asked})
        return "" if answer.status_code == 202 else f"{answer.status_code} {answer.json()['reason']}"

    assert reason_of(verb="pause") == "409 token_stale"
    assert reason_of(pool="other") == "409 token_stale"
    assert reason_of(filter="kind=drill") == "409 token_stale"
    assert reason_of(pool=pool, filter="kind=weld", reason="twice") == ""
    assert reason_of(reason="twice") == ""
    assert reason_of(reason="once") == "409 token_stale"
    assert over(site.client, token)["outcomes"] == {"CANCELLED": 1}
    assert reason_of(reason="twice") == ""
    assert len(events(site, pool, "TaskCancelled")) == 1


def test_a_token_that_was_not_used_ends_after_an_hour(site: Site, pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was used stands for its work."""
    after = fill(site, pool, 2)
    used, unused = (dry_run(site, "change", pool, after=after)["token"] for _ in range(2))
    act(site, "change", used, changed={"priority": 1})
    over(site.client, used)
    later = now_ms() + bulk_folder.SELECTION_S * 1000 + 1_000
    monkeypatch.setattr(bulk, "now_ms", lambda: later)

    answer = site.client.post("/v1/bulk", json={"verb": "change", "token": unused, "changed": {"priority": 1}})
    assert (answer.status_code, answer.json()["reason"]) == (409, "token_stale")
    act(site, "change", used, changed={"priority": 1})


# ---- once, whatever ends meanwhile ----


class Second:
    """One more gateway on the site's log, tables and folder."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.gateway = Gateway(
            MemoryLog(site.store), site.tables, site.settings, f"second-{uuid.uuid4().hex[:8]}", folder
        )
        self.served = Served(self.gateway)

    def __enter__(self) -> httpx.Client:
        self.served.start()
        self.client = httpx.Client(base_url=self.served.url, timeout=CEILING_S)
        until(lambda: self.client.get("/readyz").status_code == 200, "readiness")
        return self.client

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.served.stop()


def folder_of(site: Site) -> Path:
    """Where the site keeps selections."""
    return site.folder.with_name("bulk")


@pytest.mark.parametrize("left", [b"", b'{"at":1,"to":'], ids=["nothing noted", "half a line"])
def test_what_is_sent_again_after_a_crash_acts_once(site: Site, pool: str, left: bytes) -> None:
    """The commands were decided, the note of it is lost: the next gateway sends them again, owners remember them."""
    token = dry_run(site, "change", pool, after=fill(site, pool, 30))["token"]
    act(site, "change", token, changed={"priority": 4})
    first = over(site.client, token)
    (folder_of(site) / token / "done").write_bytes(left)
    with Second(site, folder_of(site)) as client:
        again = over(client, token)

    assert (again["outcomes"], again["refused"]) == (first["outcomes"], first["refused"]) == ({"WAITING": 30}, {})
    assert Counter(event["task"] for event in events(site, pool, "TaskChanged")) == {f"t{n}": 1 for n in range(30)}


def test_a_work_is_done_by_one_gateway_at_a_time(site: Site, pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another gateway of the host says how far it is; when the first has ended, it goes on with it."""
    monkeypatch.setattr(bulk, "BATCH", 5)
    after = fill(site, pool, 40)
    token = dry_run(site, "change", pool, after=after)["token"]
    second = Second(site, folder_of(site))
    with second as client:
        asked = {"verb": "change", "token": token, "changed": {"priority": 2}}
        assert client.post("/v1/bulk", json=asked).status_code == 202
        assert site.client.get(f"/v1/bulk/{token}").json()["state"] == GOING_ON
        assert token not in site.gateway.bulk._works
        until(lambda: client.get(f"/v1/bulk/{token}").json()["done"] >= 5, "a batch")
    assert BulkFolder(folder_of(site)).selection(token).tally().over is None  # type: ignore[union-attr]
    work = over(site.client, token)

    assert (work["done"], work["outcomes"]) == (40, {"WAITING": 40})
    assert Counter(event["task"] for event in events(site, pool, "TaskChanged")) == {f"t{n}": 1 for n in range(40)}


def test_a_work_can_be_ended(site: Site, pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was done stays done; nothing more is sent."""
    monkeypatch.setattr(bulk, "BATCH", 5)
    token = dry_run(site, "cancel", pool, after=fill(site, pool, 60))["token"]
    act(site, "cancel", token)
    until(lambda: site.client.get(f"/v1/bulk/{token}").json()["done"] >= 5, "a batch")
    ended = site.client.post(f"/v1/bulk/{token}/cancel").json()

    assert (ended["state"], ended["why"]) == ("stopped", "ended by local")
    assert 5 <= ended["done"] < 60
    assert len(events(site, pool, "TaskCancelled")) == ended["done"] == ended["outcomes"]["CANCELLED"]
    assert site.client.post(f"/v1/bulk/{token}/cancel").json() == ended


def test_the_rate_is_bounded(site: Site, pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most a batch on its way, and a batch takes its time."""
    monkeypatch.setattr(bulk, "BATCH", 10)
    monkeypatch.setattr(bulk, "BATCH_EVERY_S", 0.1)
    token = dry_run(site, "change", pool, after=fill(site, pool, 50))["token"]
    sent: list[int] = []
    original = site.gateway.ask_all

    async def counting(commands: Any) -> Any:
        sent.append(len(commands))
        return await original(commands)

    monkeypatch.setattr(site.gateway, "ask_all", counting)
    began = time.monotonic()
    act(site, "change", token, changed={"priority": 1})
    over(site.client, token)

    assert sent == [10] * 5
    assert time.monotonic() - began >= 0.4


def test_what_may_succeed_later_is_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A retryable refusal is no end: the same command comes again until the owner decides."""
    monkeypatch.setattr(bulk, "AGAIN_S", 0.01)
    with Site(partitions=2) as site:
        token = dry_run(site, "change", "hall-a", after=fill(site, "hall-a", 3))["token"]
        original, asked = site.gateway.ask_all, list[list[str]]()

        async def refusing_first(commands: Any) -> Any:
            asked.append([command.id for command in commands])
            answers = await original(commands)
            if len(asked) == 1:
                answers[1].accepted, answers[1].refusal = None, Refusal("log_unavailable", "the log is away")
            return answers

        monkeypatch.setattr(site.gateway, "ask_all", refusing_first)
        act(site, "change", token, changed={"priority": 3})
        work = over(site.client, token)

        assert (work["outcomes"], work["refused"]) == ({"WAITING": 3}, {})
        assert asked == [asked[0], [asked[0][1]]]
        assert len(events(site, "hall-a", "TaskChanged")) == 3


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """Said with the folder; nothing is half there, and the rest of the gateway goes on."""
    with Site(partitions=2) as site:
        after = fill(site, "hall-a", 1)
        folder_of(site).write_text("a file where the folder would be")
        asked = {"verb": "cancel", "pool": "hall-a", "dry_run": True}
        answer = site.client.post("/v1/bulk", json=asked, params={"after": after})
        assert (answer.status_code, answer.json()["reason"]) == (503, "not_ready")
        assert f"{folder_of(site)} cannot be written" in answer.json()["detail"]
        folder_of(site).unlink()
        assert dry_run(site, "cancel", "hall-a")["count"] == 1


def test_at_most_a_million_are_found(site: Site, pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More are refused, and nothing is left of them."""
    after = fill(site, pool, 3)
    before = set(folder_of(site).iterdir())
    monkeypatch.setattr(bulk, "SELECTED_MAX", 2)
    asked = {"verb": "cancel", "pool": pool, "dry_run": True}
    answer = site.client.post("/v1/bulk", json=asked, params={"after": after})
    assert (answer.status_code, answer.json()["reason"]) == (400, "bad_filter")
    assert "narrow the filter" in answer.json()["detail"]
    assert set(folder_of(site).iterdir()) <= before


def test_only_so_many_works_at_a_time(site: Site, pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is told to come back."""
    token = dry_run(site, "cancel", pool, after=fill(site, pool, 1))["token"]
    monkeypatch.setattr(bulk, "WORKS_MAX", 0)
    answer = site.client.post("/v1/bulk", json={"verb": "cancel", "token": token})
    assert (answer.status_code, answer.json()["reason"]) == (429, "gateway_busy")
    assert answer.json()["retry_after_s"] == 5


# ---- who may ----


def test_who_may_do_bulk_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators all verbs in their pools; submitters cancel their own; a token is its asker's; a withdrawn one ends."""
    path = tmp_path / "tokens.toml"
    made = {
        "operator": new_token("operator", "operator", pools=["hall-*"]),
        "second": new_token("second", "operator", pools=["hall-a"]),
        "submitter": new_token("submitter", "submitter", pools=["hall-a"]),
        "viewer": new_token("viewer", "viewer"),
    }
    write_tokens(path, [entry for _, entry in made.values()])
    monkeypatch.setattr(bulk, "BATCH", 1)
    with Site(partitions=2, tokens=path) as site:

        def ask(who: str, method: str, path: str, body: Any = None, **params: Any) -> httpx.Response:
            headers = {"Authorization": f"Bearer {made[who][0]}"}
            return site.client.request(method, path, json=body, params=params, headers=headers)

        assert ask("operator", "POST", "/v1/pools", {"pool": "hall-a"}).status_code == 201
        for who, count in (("operator", 6), ("submitter", 2)):
            tasks = [{"kind": "weld", "id": f"{who}-{n}"} for n in range(count)]
            after = ask(who, "POST", "/v1/pools/hall-a/tasks", {"tasks": tasks}).json()["position"]
        cancel = {"verb": "cancel", "pool": "hall-a", "dry_run": True}

        def run(who: str, **more: Any) -> httpx.Response:
            return ask(who, "POST", "/v1/bulk", cancel | more, after=after)

        assert run("viewer").json()["reason"] == "forbidden"
        assert run("second", pool="hall-b").json()["reason"] == "forbidden"
        assert run("submitter", verb="pause").json()["reason"] == "forbidden"
        own = run("submitter").json()
        assert (own["count"], {task["id"] for task in own["examples"]}) == (2, {"submitter-0", "submitter-1"})
        every = run("operator", pool=None).json()
        assert every["count"] == 8
        stolen = ask("second", "POST", "/v1/bulk", {"verb": "cancel", "token": every["token"]})
        assert stolen.json()["reason"] == "forbidden"
        work = ask("operator", "POST", "/v1/bulk", {"verb": "cancel", "token": every["token"]}).json()
        assert ask("second", "GET", f"/v1/bulk/{work['id']}").json()["reason"] == "no_such_bulk"
        assert ask("viewer", "POST", f"/v1/bulk/{work['id']}/cancel").json()["reason"] == "no_such_bulk"
        write_tokens(path, [entry for name, (_, entry) in made.items() if name != "operator"])
        ended = until(lambda: (s := BulkFolder(folder_of(site)).selection(work["id"])) and s.tally().over and s.tally())
        assert (ended.over, ended.why) == ("stopped", "the token operator was withdrawn or changed")
        assert ended.done < 8


# ---- what is kept ----


def test_old_selections_and_works_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unused one after its hour, one that is over after a week; never more than 16 and 200 of them."""
    monkeypatch.setattr(bulk_folder, "KEPT_MAX", 1)
    folder, now = BulkFolder(tmp_path / "bulk"), now_ms()
    hour, week = bulk_folder.SELECTION_S * 1000, bulk_folder.KEPT_S * 1000

    def made(at: int, over_at: int | None = None) -> str:
        writing = folder.writing()
        writing.add([("hall-a", "t1")])
        selection = writing.finish({"at": at})
        if over_at is not None:
            selection.ask({"at": at})
            selection.note({"at": over_at, "to": 1, "over": "done"})
        return selection.token

    stale, fresh = made(now - 2 * hour - 1), [made(now - n) for n in range(17)]
    done, kept_work = made(now - 2 * week, now - week - 1), made(now - 2 * week, now - week + hour)
    one_too_many = made(now - 2 * week, now - week + hour - 1)
    folder.forget_old(now)

    kept = {path.name for path in (tmp_path / "bulk").iterdir()}
    assert kept == {*fresh[:16], kept_work}
    assert one_too_many not in kept
    assert stale not in kept
    assert done not in kept
    with folder.selection(fresh[0]).tasks_from(0) as tasks:  # type: ignore[union-attr]
        assert list(tasks) == [("hall-a", "t1")]
