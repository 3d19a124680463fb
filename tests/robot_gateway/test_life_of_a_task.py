"""The whole way once, over both transports: submitted, assigned, run, completed, and all of it to be seen."""

from collections.abc import Iterator

import pytest

from robot_gateway.conformance.raw_robot import RawRobot
from tests.support.site import Site, until


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Real owners, projector and gateway."""
    with Site() as running:
        yield running


@pytest.mark.parametrize("transport", ["websocket", "polling"])
def test_a_task_from_submission_to_result(site: Site, transport: str) -> None:
    """Every answer fits the one before; the result can be read; history says it all."""
    pool = f"hall-{transport}"
    task = site.submit(pool, payload={"path": "/x"}, labels={"line": "3"}, requirement=["gpu"])
    assert (task["state"], task["pool"], task["changed"]) == ("WAITING", pool, True)
    robot: RawRobot = site.robot(pool=pool) if transport == "websocket" else site.polling_robot(pool=pool)
    with robot:
        welcome = robot.hello()
        assert welcome["protocol"] == 1
        assert welcome["payload_max_bytes"] == 262_144
        assert robot.ask("ready", n=1)["type"] == "ack"

        assign = robot.expect("assign")
        assert assign["task"] == task["id"]
        assert assign["payload"] == {"path": "/x"}
        assert assign["labels"] == {"line": "3"}
        here = {"task": assign["task"], "attempt": assign["attempt"]}
        ack = robot.ask("accept", **here)
        assert (ack["type"], ack["lease_ms"], ack["stop_after_ms"]) == ("ack", 15_000, 15_000)
        beat = robot.ask("heartbeat", holding=[{**here, "progress": 40, "note": "reading"}])
        assert (beat["type"], beat["stop"], beat["cancel"]) == ("heartbeat_ack", [], [])
        assert robot.ask("checkpoint", **here, number=1, value={"offset": 4096})["type"] == "ack"
        done = robot.ask("complete", **here, result={"sha256": "00"})
        assert done["type"] == "ack"
        assert robot.ask("bye")["type"] == "ack"
        assert robot.expect_closed().code == 1000

    path = f"/v1/pools/{pool}/tasks/{task['id']}"
    ended = site.client.get(path, params={"after": done["position"]}).json()
    assert (ended["state"], ended["kind"], ended["attempt"], ended["robot"]) == ("COMPLETED", "weld", 1, "r1")
    assert site.client.get(f"{path}/result").json() == {"sha256": "00"}
    assert site.client.get(f"{path}/payload").json() == {"path": "/x"}
    (saved,) = site.client.get(f"{path}/checkpoints").json()["items"]
    assert saved["number"] == 1
    assert site.client.get(f"{path}/checkpoints/1").json() == {"offset": 4096}
    types = [event["type"] for event in site.client.get(f"{path}/history").json()["items"]]
    assert types == ["TaskSubmitted.v1", "TaskAssigned.v1", "LeaseStarted.v1", "CheckpointSaved.v1", "TaskCompleted.v1"]
    until(lambda: site.client.get(f"/v1/pools/{pool}/robots/r1").json()["state"] == "OFFLINE")


def test_waiting_for_the_end(site: Site) -> None:
    """`wait_s` answers when the task has ended, or after that time with the task as it stands."""
    task = site.submit("hall-wait")
    path = f"/v1/pools/hall-wait/tasks/{task['id']}"
    assert site.client.get(path, params={"wait_s": 0.2}).json()["state"] == "WAITING"

    cancelled = site.client.post(f"{path}/cancel", json={"reason": "nobody wants it"})
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "CANCELLED")
    ended = site.client.get(path, params={"wait_s": 60})
    assert (ended.json()["state"], ended.json()["reason"]) == ("CANCELLED", "nobody wants it")
