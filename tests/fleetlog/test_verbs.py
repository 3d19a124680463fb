"""What verbs do, seen through the command line alone: submit, wait, look, mend, set up; on a running fleet."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetlog.verb import VERBS
from tests.fleetlog.conftest import CommandLine, Done, objects
from tests.fleetlog.world import World
from tests.support.fleet import Fleet
from tests.support.site import Site, until


@pytest.fixture
def world(fleet: Fleet, pool: str) -> Iterator[World]:
    """A pool of the running fleet to be filled."""
    world = World(fleet, pool)
    yield world
    world.close()


def state_of(cli: CommandLine, task: str) -> str:
    """The state of a task, by the command line."""
    return str(objects(cli("task", task, "--json"))[0]["state"])


# ---- submit ----


@pytest.mark.usefixtures("pool")
def test_a_task_is_submitted_with_what_options_say(cli: CommandLine) -> None:
    """Every option arrives as the field that it is about; durations in seconds, instants with a zone."""
    options = shlex.split(
        "--id t1 --priority 7 --target dock-7 --require gpu --require 'mem>=4' --prefer fast --slot-cost 2 "
        "--not-before 2h --start-by 3h --end-by 2099-01-01T00:00:00Z --run-within 60 --then dead --lease 30 --accept 9 "
        "--failures-max 5 --backoff-first 2 --backoff-max 60 --lost-max 2 --on-lost wait --lost-wait 40 --pass all "
        "--late record --label line=3 --label hall=a"
    )
    payload = json.dumps({"seam": [1, 2]})
    assert objects(cli("submit", "weld", "--payload", payload, *options, "--json"))[0]["id"] == "t1"

    task = objects(cli("task", "t1", "--json"))[0]
    assert {name: task[name] for name in ("kind", "priority", "target", "requirement", "prefer", "slot_cost")} == {
        "kind": "weld", "priority": 7, "target": "dock-7", "requirement": ["gpu", "mem>=4"], "prefer": ["fast"],
        "slot_cost": 2,
    }  # fmt: skip
    assert {name: task[name] for name in ("lease_s", "accept_s", "lost_max", "pass", "late_policy", "labels")} == {
        "lease_s": 30, "accept_s": 9, "lost_max": 2, "pass": "all", "late_policy": "record",
        "labels": {"line": "3", "hall": "a"},
    }  # fmt: skip
    assert task["retry"] == {"failures_max": 5, "first_s": 2, "factor": 2.0, "max_s": 60}
    assert task["on_lost"] == {"policy": "wait", "wait_s": 40}
    assert {name: deadline["then"] for name, deadline in task["deadlines"].items()} == dict.fromkeys(
        ("start", "run", "end"), "dead"
    )
    assert task["deadlines"]["end"]["at"] == "2099-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("words", "stdin", "payload"),
    [
        (["--payload", "hello"], "", "hello"),
        (["--payload", "7"], "", 7),
        (["--payload", '"7"'], "", "7"),
        (["--payload", "@given.json"], "", {"a": 1}),
        (["--payload", "-"], "from stdin\n", "from stdin"),
        ([], "", None),
    ],
)
def test_payloads(
    cli: CommandLine, fleet: Fleet, pool: str, words: list[str], stdin: str, payload: Any, tmp_path: Path
) -> None:
    """JSON where it is JSON, else a text; from a file, from standard input, or none at all."""
    (tmp_path / "given.json").write_text('{"a": 1}\n')
    done = cli("submit", "k", "--id", "t1", *words, stdin=stdin)

    assert (done.code, done.out) == (0, "t1\n")
    with fleet.client(pool) as client:
        from robot_gateway.sdk import calls

        assert client._ask(calls.Call("GET", f"/v1/pools/{pool}/tasks/t1/payload", lambda r: r.json())) == payload


@pytest.mark.usefixtures("pool")
def test_the_same_task_again_is_known_and_another_is_refused(cli: CommandLine) -> None:
    """By its id, or by the command id; other content under the same id is refused with the word for it."""
    command = "0b9f6f4e-6a54-4d27-8a86-4f2f4f6d8f0a"
    first = cli("submit", "k", "--command-id", command)
    again = cli("submit", "k", "--command-id", command)
    cli("submit", "k", "--id", "t1")
    known = cli("submit", "k", "--id", "t1")
    other = cli("submit", "other", "--id", "t1")

    assert first.out == again.out
    assert known.out == "t1 (known already, WAITING)\n"
    assert (other.code, "[id_conflict]" in other.err) == (1, True)


def test_waiting_says_why_and_gives_the_result(cli: CommandLine, world: World, fleet: Fleet) -> None:
    """`--wait` says what holds the task, then how it ended, and prints the result on standard output alone."""
    world.hold("order-17")
    helper = threading.Timer(3.0, world.finish_waiting)
    helper.start()
    done = cli("submit", "k", "--id", "t1", "--require", "nobody", "--wait")
    helper.join()

    assert (done.code, json.loads(done.out)) == (0, {"weight": 3})
    assert "No registered robot does k and has nobody yet" in done.err
    assert "t1 completed by nobody" in done.err
    assert json.loads(cli("result", "order-17").out) == {"weight": 3}


def test_what_was_submitted_just_now_is_waited_for(cli: CommandLine) -> None:
    """Also where the tables do not have it yet, because the projector stands still for a while."""
    with Site(after_wait_s=0.1) as site:
        site.stop_projector()
        helper = threading.Timer(1.5, site.start_projector)
        helper.start()
        done = cli("submit", "k", "--id", "t1", "--wait", "--timeout", "0.5", "--gateway", site.url, "--pool", "hall-a")
        helper.join()
    assert (done.code, "t1 has not ended in time" in done.err) == (3, True), done


def test_waiting_ends_with_the_time(cli: CommandLine, world: World) -> None:
    """Exit code 3, and what to do; a dead letter is 1."""
    world.hold("order-18 order-19")
    late, dead = cli("wait", "order-18", "--timeout", "0.3"), cli("wait", "order-19")

    assert (late.code, late.err) == (
        3,
        "fleetlog: order-18 has not ended in time: it goes on; ask again with `fleetlog wait order-18`.\n",
    )
    assert dead.code == 1
    assert "order-19 dead (last robot: worker)" in dead.out
    assert "not completed: order-19; see `fleetlog history order-19`." in dead.err
    assert "order-19 has no result, it is DEAD" in cli("result", "order-19").err


# ---- look ----


def test_lists_take_filters_limits_columns_and_orders(cli: CommandLine, world: World) -> None:
    """--where, --limit, --all, --sort, --columns; tab-separated in a pipe."""
    world.hold("nothing")
    for number in range(4):
        cli("submit", "even" if number % 2 == 0 else "odd", "--id", f"t{number}", "--priority", str(number))

    assert [line.split("\t")[0] for line in cli("tasks", "--limit", "2").lines] == ["t3", "t2"]
    assert cli("tasks", "--where", "kind=even", "--columns", "id,priority").lines == ["t2\t2", "t0\t0"]
    assert cli("tasks", "--sort", "priority", "--columns", "id").lines == ["t0", "t1", "t2", "t3"]
    assert objects(cli("tasks", "--columns", "id", "--limit", "1", "--json")) == [{"id": "t3"}]
    assert "[bad_filter]" in cli("tasks", "--where", "stat=DEAD").err


def test_a_task_is_shown_explained_and_told(cli: CommandLine, world: World) -> None:
    """task, why, history, events: one task, four ways to look at it."""
    world.hold("order-17 order-18")

    assert "state\tCOMPLETED" in cli("task", "order-17").lines
    assert "no registered robot has nobody" in cli("why", "order-18").out
    told = [line.split("\t") for line in cli("history", "order-17").lines]
    assert [row[2] for row in told] == ["TaskSubmitted", "TaskAssigned", "LeaseStarted", "TaskCompleted"]
    assert told[1][4].startswith("assigned to worker (attempt 1, waited ")
    raw = objects(cli("history", "order-17", "--json"))
    assert [event["type"] for event in raw] == [f"{row[2]}.v1" for row in told]
    assert objects(cli("events", "--where", "task=order-17", "--json")) == raw
    assert "[no_such_task]" in cli("task", "order-99").err


def test_robots_pools_and_targets(cli: CommandLine, world: World, pool: str) -> None:
    """States, what is held, what waits."""
    world.hold("order-23 r3")
    cli("submit", "k", "--target", "dock-7", "--id", "t1", "--require", "nobody")
    targets = cli("targets", "--json").lines
    robots = {robot["id"]: robot for robot in objects(cli("robots", "--json"))}

    assert (robots["worker"]["state"], list(robots["worker"]["attempts"])) == ("BUSY", ["order-23"])
    assert robots["r3"]["state"] == "ERROR"
    assert "fault.text\tthe gripper is stuck" in cli("robots", "r3").lines
    assert json.loads(targets[0])["name"] == "dock-7"
    shown = next(one for one in objects(cli("pools", "--all", "--json")) if one["pool"] == pool)
    assert shown["tasks"] == {"RUNNING": 1, "WAITING": 1}
    assert "settings.window_s\t1" in cli("pool", "show", pool).lines


def test_all_pools_are_one_star_away(cli: CommandLine, world: World) -> None:
    """`--pool '*'` lists everything; ids need a pool of their own."""
    world.hold("order-18")

    assert "order-18" in cli("tasks", "--pool", "*", "--all").out
    assert "ids belong to one pool: name it with --pool." in cli("cancel", "order-18", "--pool", "*").err


# ---- mend ----


def test_task_verbs_take_ids_standard_input_or_a_filter(cli: CommandLine, world: World) -> None:
    """Ids; `-` reads the first word of each line; --where shows what it found and asks, unless --yes."""
    for task in ("a1", "a2", "a3", "b1", "b2"):
        cli("submit", task[0] * 3, "--id", task)

    assert cli("cancel", "a1", "--reason", "why not").out == "a1 cancelled\n"
    assert cli("cancel", "-", stdin="a2\tand more\n\na3\n").out == "a2 cancelled\na3 cancelled\n"
    asked = cli("cancel", "--where", "kind=bbb")
    assert asked.code == 2
    assert "b1  WAITING" in asked.err
    assert "nobody can answer here: say --yes" in asked.err
    assert cli("cancel", "--where", "kind=bbb", "--yes").lines == ["CANCELLED\t2"]
    assert "no task matches 'kind=bbb'" in cli("cancel", "--where", "kind=bbb", "--yes").err


@pytest.mark.usefixtures("pool")
def test_a_change_takes_parts_away(cli: CommandLine) -> None:
    """One by one; what is given with it stays."""
    words = ["--require", "gpu", "--prefer", "ssd", "--label", "line=3", "--end-by", "1h"]
    assert cli("submit", "k", "--id", "less", *words).code == 0
    assert cli("change", "less", "--without", "requirement", "--without", "prefer").code == 0
    shown = json.loads(cli("task", "less", "--json").out)
    assert (shown.get("requirement", []), shown.get("prefer", [])) == ([], [])
    assert (shown["labels"], "end" in shown["deadlines"]) == ({"line": "3"}, True)

    assert cli("change", "less", "--without", "deadlines", "--without", "labels", "--label", "line=4").code == 0
    shown = json.loads(cli("task", "less", "--json").out)
    assert (shown.get("deadlines") or {}, shown["labels"]) == ({}, {"line": "4"})


def test_one_refusal_does_not_stop_the_others(cli: CommandLine, world: World) -> None:
    """Each is named with its reason; exit code 1."""
    world.hold("order-17 order-18")
    done = cli("cancel", "order-17", "order-99", "order-18")

    assert (done.code, done.out) == (1, "order-18 cancelled\n")
    assert "order-17: " in done.err
    assert "[wrong_state]" in done.err
    assert "order-99: " in done.err
    assert "2 of 3 tasks were refused; the reasons stand above." in done.err


def test_dead_letters_are_seen_redriven_discarded_resolved(cli: CommandLine, world: World) -> None:
    """Each with the reason that the log keeps."""
    world.hold("order-19 order-20 order-21")
    listed = {line.split("\t")[0]: line for line in cli("dead-letters").lines}

    assert set(listed) == {"order-19", "order-20", "order-21"}
    assert listed["order-19"].endswith("\tthe link is down")
    assert cli("redrive", "order-19", "--reason", "link is back", "--priority", "9").out == "order-19 is WAITING\n"
    assert cli("discard", "order-20", "--reason", "not needed").out == "order-20 is DISCARDED\n"
    assert (
        cli("resolve", "order-21", "--reason", "by hand", "--result", '{"ok": true}').out == "order-21 is COMPLETED\n"
    )
    assert cli("result", "order-21").out == '{"ok": true}\n'
    redriven = [event for event in objects(cli("history", "order-19", "--json")) if event["type"] == "TaskRedriven.v1"]
    assert (redriven[0]["reason"], redriven[0]["changed"]["priority"]) == ("link is back", 9)
    assert cli("dead-letters").out == ""


def test_a_running_task_is_released(cli: CommandLine, world: World) -> None:
    """It goes back into the queue; the reason is recorded."""
    world.hold("order-23")
    done = cli("release", "order-23", "--reason", "stuck", "--force", "--json")

    assert objects(done)[0]["state"] == "WAITING"
    told = objects(cli("events", "--types", "TaskReleased", "--json"))
    assert (told[0]["reason"], told[0]["force"]) == ("stuck", True)


def test_pools_targets_kinds_and_tasks_are_paused_and_resumed(cli: CommandLine, world: World, pool: str) -> None:
    """What a pause holds, `why` names; again it changes nothing."""
    world.hold("nothing")
    cli("submit", "report", "--target", "dock-7", "--id", "t1")

    assert cli("pause", "--reason", "inventory").out == f"pool {pool} paused\n"
    assert cli("pause").out == f"pool {pool} paused already\n"
    assert cli("pause", "--kind", "report", "--until", "2h").out == "kind report paused\n"
    assert cli("pause", "--target", "dock-7").out == "target dock-7 paused\n"
    assert cli("pause", "t1").out == "t1 paused\n"
    assert [hold["reason"] for hold in objects(cli("why", "t1", "--json"))[0]["holds"][:4]] == [
        "pool_paused", "kind_paused", "task_paused", "target_paused",
    ]  # fmt: skip
    for words in (["resume"], ["resume", "--kind", "report"], ["resume", "--target", "dock-7"], ["resume", "t1"]):
        assert cli(*words).code == 0
    assert "paused" not in cli("why", "t1").out


def test_robots_are_drained_cleared_retired(cli: CommandLine, world: World) -> None:
    """By an operator's word; a robot that holds something is not retired."""
    world.hold("order-23 r1 r3 r7")

    assert cli("drain", "r1", "--reason", "oil").out == "r1 drains\n"
    assert cli("drain", "r1").out == "r1 drains already\n"
    assert cli("undrain", "r1").out == "r1 gets work again\n"
    assert cli("clear", "r3").out == "r3 is out of ERROR\n"
    assert "[not_in_error]" in cli("clear", "r3").err
    assert cli("retire", "r7", "--reason", "sold").out == "r7 is retired\n"
    both = cli("retire", "worker", "r1", "--reason", "sold")
    assert (both.code, both.out) == (1, "r1 is retired\n")
    assert "[robot_has_attempts]" in both.err


# ---- set up ----


def test_pools_are_created_and_set(cli: CommandLine, pool: str) -> None:
    """Settings in seconds; a setting that cannot be is refused by its name outside."""
    assert cli("pool", "create", pool, "window_s=2", "lease_s=8", "on_lost=ask").out == f"pool {pool} created\n"
    assert cli("pool", "create", pool).out == f"pool {pool} exists already\n"
    assert cli("pool", "set", pool, "lease_s=12", "--reason", "slow").out == f"pool {pool} set: lease_s=12\n"
    assert {"settings.window_s\t2", "settings.lease_s\t12", "settings.on_lost\task"} <= set(
        cli("pool", "show", pool).lines
    )
    assert "lease_s must be at least three windows" in cli("pool", "set", pool, "lease_s=4").err
    assert "window_s must be at least 1" in cli("pool", "set", pool, "window_s=0.5").err


def test_tokens_are_made_listed_and_withdrawn(cli: CommandLine) -> None:
    """The token is printed once, the file keeps its digest and can be read by nobody else."""
    token = cli("token", "new", "ada", "--role", "operator", "--expires", "30d", "--pools", "hall-a").out.strip()
    file = Path("tokens.toml")

    assert token.startswith("flt_")
    assert token not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert "there is a token ada in tokens.toml already" in cli("token", "new", "ada", "--role", "viewer").err
    assert "cannot be the name of a token" in cli("token", "new", "_x", "--role", "viewer").err
    assert "'hall-\\udcff' is no text" in cli("token", "new", "eve", "--role", "viewer", "--pools", "hall-\udcff").err
    assert cli("token", "list").lines[0].split("\t")[:3] == ["ada", "operator", "hall-a"]
    assert cli("token", "revoke", "ada").out == "token ada is withdrawn\n"
    assert cli("token", "list").out == ""
    assert "there is no token ada" in cli("token", "revoke", "ada").err


def test_a_gateway_with_tokens_wants_one(cli: CommandLine, tmp_path: Path) -> None:
    """The token file of the client is read, must be private, and decides what is allowed."""
    secret = tmp_path / "secret"
    for name, role in (("ada", "operator"), ("vera", "viewer")):
        (tmp_path / name).write_text(cli("token", "new", name, "--role", role).out)
        (tmp_path / name).chmod(0o600)
    secret.write_text("flt_x")
    with Fleet(tmp_path / "data", gateway={"tokens": str(tmp_path / "tokens.toml")}) as fleet:
        ask = ["--gateway", fleet.url, "--pool", "hall-a"]
        assert "[unauthenticated]" in cli("tasks", *ask).err
        assert "run `chmod 600" in cli("tasks", *ask, "--token-file", str(secret)).err
        assert "[no_such_pool]" in cli("submit", "k", *ask, "--token-file", "ada").err
        assert cli("pool", "create", "hall-a", "--gateway", fleet.url, "--token-file", "ada").code == 0
        assert cli("submit", "k", "--id", "t1", *ask, "--token-file", "ada").out == "t1\n"
        assert "[forbidden]" in cli("cancel", "t1", *ask, "--token-file", "vera").err
        assert cli("tasks", *ask, "--token-file", "vera").out.startswith("t1\t")

        def doctor(*options: str) -> str:
            lines = cli("doctor", "--gateway", fleet.url, *options).lines
            return next(line for line in lines if line.split("\t")[1] == "token")

        secret.chmod(0o600)
        assert doctor().startswith("note\ttoken\tthe gateway asks for one")
        assert doctor("--token-file", "ada") == "ok\ttoken\tthe gateway knows it"
        assert doctor("--token-file", str(secret)).startswith("bad\ttoken\tthe gateway does not know it")


# ---- all verbs ----


def test_every_option_of_every_help_is_accepted(cli: CommandLine) -> None:
    """`--json`, `--quiet` and NO_COLOR everywhere; help never ends in a fault."""
    for verb in VERBS:
        told = cli(*verb.words, "--help")
        assert told.code == 0, verb.words
        assert "--json" in told.out, verb.words
        assert "--quiet" in told.out, verb.words
        assert "\x1b[" not in told.out


def test_the_doctor_names_what_is_degraded(cli: CommandLine) -> None:
    """What works but is not as it should be is a note, with what to do."""
    with Site() as site:
        before = cli("doctor", "--gateway", site.url, "--json")
        site.gateway.health._disk = lambda: "the disk under /data has only 5 bytes free"
        until(site.gateway.degraded_parts, "the look")
        after = cli("doctor", "--gateway", site.url, "--json")

    def ready(done: Done) -> tuple[str, str]:
        found = next(row for row in map(json.loads, done.lines) if row["what"] == "ready")
        return found["verdict"], found["text"]

    assert ready(before) == ("ok", "every part is ready")
    assert ready(after) == (
        "note", "disk: the disk under /data has only 5 bytes free; no submissions are taken: make room"
    )  # fmt: skip
