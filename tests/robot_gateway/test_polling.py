"""Long polling: numbering of what is said to the robot, waiting polls, and sessions that are not here."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from robot_gateway.conformance.raw_robot import PollingRobot
from robot_gateway.polling import PollChannel
from tests.support.site import Site, until


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A gateway with a scripted owner and tables."""
    with Site(scripted=True, partitions=1, after_wait_s=0.2) as running:
        yield running


@pytest.fixture
def robot(site: Site) -> Iterator[PollingRobot]:
    """A robot that has said hello."""
    new = site.polling_robot(f"p-{time.monotonic_ns()}")
    new.hello()
    yield new
    site.owner.on_report = site.owner.accept_report
    new.leave()


def tell(site: Site, robot: PollingRobot, *tasks: str) -> None:
    """Says one cancel for each task, and waits until all are there."""
    for task in tasks:
        site.owner.tell("hall-a", robot.robot, {"type": "cancel", "task": task, "attempt": 1})

    def there() -> bool:
        cursor: int = robot.poll([], seen=robot.seen).json()["cursor"]
        return cursor >= robot.seen + len(tasks)

    until(there)


def heartbeat_every_ms(site: Site, robot: PollingRobot) -> int:
    """The rhythm of the robot's session."""
    return next(session.heartbeat_every_ms for session in site.gateway.sessions if session.robot == robot.robot)


def is_waiting(site: Site, robot: PollingRobot) -> bool:
    """Whether a poll of the robot waits in the gateway."""
    channels = [session.channel for session in site.gateway.sessions if session.robot == robot.robot]
    return any(isinstance(channel, PollChannel) and channel.is_waited_for for channel in channels)


def tasks_of(answer: Any) -> list[str]:
    return [message["task"] for message in answer.json()["messages"]]


def test_messages_come_again_until_they_are_seen(site: Site, robot: PollingRobot) -> None:
    """An answer that was lost on the way costs nothing."""
    tell(site, robot, "a", "b", "c")
    first = robot.poll([], seen=robot.seen)
    assert tasks_of(first) == ["a", "b", "c"]
    assert tasks_of(robot.poll([], seen=robot.seen)) == ["a", "b", "c"]

    cursor = first.json()["cursor"]
    assert tasks_of(robot.poll([], seen=cursor - 1)) == ["c"]
    assert tasks_of(robot.poll([], seen=cursor)) == []
    tell(site, robot, "d")
    assert tasks_of(robot.poll([], seen=cursor)) == ["d"]
    assert robot.poll([], seen=cursor).json()["cursor"] == cursor + 1


def test_a_waiting_poll_is_answered_by_news(site: Site, robot: PollingRobot) -> None:
    """At once, long before its time is over."""
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(robot.poll([], seen=robot.seen, wait_ms=25_000)))
    waiting.start()
    until(lambda: is_waiting(site, robot))
    site.owner.tell("hall-a", robot.robot, {"type": "cancel", "task": "now", "attempt": 1})
    waiting.join(60)

    assert tasks_of(answers[0]) == ["now"]


def test_a_newer_poll_ends_the_older_with_an_empty_list(site: Site, robot: PollingRobot) -> None:
    """One waiting poll a session; what comes then goes to the newer one."""
    site.owner.tell("hall-a", robot.robot, {"type": "session_note", "heartbeat_every_ms": 60_000})
    newer = site.polling_robot(robot.robot)
    newer.session = robot.session
    until(lambda: heartbeat_every_ms(site, robot) == 60_000)
    answers: dict[str, Any] = {}

    def wait(name: str, poller: PollingRobot) -> threading.Thread:
        def poll() -> None:
            answers[name] = poller.poll([], seen=robot.seen, wait_ms=25_000)

        thread = threading.Thread(target=poll)
        thread.start()
        return thread

    first = wait("older", robot)
    until(lambda: is_waiting(site, robot))
    second = wait("newer", newer)
    first.join(60)
    assert (answers["older"].status_code, answers["older"].json()["messages"]) == (200, [])
    site.owner.tell("hall-a", robot.robot, {"type": "cancel", "task": "x", "attempt": 1})
    second.join(60)
    assert tasks_of(answers["newer"]) == ["x"]
    newer.leave()


def test_two_polls_that_come_together_are_not_both_told() -> None:
    """Where news is there already, the older of two polls may still get nothing: only the newest is told."""
    channel = PollChannel(1000)

    async def both() -> tuple[bool, bool]:
        older = asyncio.ensure_future(channel.wait(60))
        await asyncio.sleep(0)
        newer = asyncio.ensure_future(channel.wait(60))
        await asyncio.sleep(0)
        channel.send(b"{}")
        return await older, await newer

    assert asyncio.run(both()) == (False, True)


def test_every_poll_is_answered_within_the_rhythm_of_heartbeats(site: Site) -> None:
    """Whatever wait_ms says, so that a robot with one loop can beat in time."""
    site.owner.on_report = lambda report: [site.owner.welcome(report, heartbeat_every_ms=200)]
    with site.polling_robot("rhythm") as robot:
        robot.hello()
        began = time.monotonic()
        assert robot.poll([], wait_ms=25_000, seen=robot.seen).json()["messages"] == []
        assert 0.15 < time.monotonic() - began < 20
    site.owner.on_report = site.owner.accept_report


def test_a_session_begins_with_hello_alone(site: Site) -> None:
    """Anything else is about a session that is not here."""
    with site.polling_robot("stranger") as robot:
        for messages in ([], ['{"type":"ready"}'], ['{"type":"hello"}', '{"type":"ready"}']):
            answer = robot.poll(messages)
            assert (answer.status_code, answer.json()["reason"]) == (410, "no_session")
        robot.hello()
        robot.session = "another"
        assert robot.poll([]).status_code == 410


def test_a_session_on_another_gateway_is_pointed_to(site: Site) -> None:
    """421 wrong_gateway, where the tables know of one."""
    with Site() as real, real.robot("r1") as robot:
        robot.hello()
        other = real.polling_robot("r1")
        until(lambda: real.client.get("/v1/pools/hall-a/robots/r1").status_code == 200)
        assert other.poll([]).json()["reason"] == "no_session"
        real.gateway.name = "another-life"
        answer = other.poll([])
        assert (answer.status_code, answer.json()["reason"]) == (421, "wrong_gateway")
        assert answer.json()["retryable"] is True
        other.leave()


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"session": 5}, "/session"),
        ({"seen": -1}, "/seen"),
        ({"wait_ms": 25_001}, "/wait_ms"),
        ({"wait": 1}, "/wait"),
    ],
)
def test_a_poll_is_strict(robot: PollingRobot, changed: dict[str, Any], field: str) -> None:
    """Out of range, of another type, or unknown."""
    answer = robot.poll([], **changed)
    assert answer.status_code == 422
    assert answer.json()["field"] == field


def test_a_poll_holds_a_hundred_messages(robot: PollingRobot) -> None:
    """And not one more; what is no object is no message."""
    ready = [json.dumps({"type": "dance", "id": f"x.{n}"}) for n in range(101)]
    assert robot.poll(ready).json()["field"] == "/messages"
    assert robot.poll(ready[:1]).status_code == 200
    assert robot.poll(["5"]).json()["field"] == "/messages/0"
    large = robot.poll(['{"type":"x","id":"y","z":"' + "x" * 2**21 + '"}'])
    assert (large.status_code, large.json()["reason"]) == (413, "too_large")


def test_a_message_too_large_is_refused_alone(robot: PollingRobot) -> None:
    """The others in the same poll are taken."""
    big = json.dumps({"type": "dance", "id": "big", "x": "x" * 512 * 1024})
    robot.poll([big])
    assert robot.expect("refused")["reason"] == "too_large"
    assert robot.ask("ready", n=1)["type"] == "ack"


def test_two_programs_is_a_conflict(site: Site) -> None:
    """What would close a WebSocket with 4002 is 409 here."""
    site.owner.on_report = lambda report: [
        {"type": "refused", "of": report.message.id, "reason": "two_programs", "text": "two", "closed": 4002}
    ]
    with site.polling_robot("twin") as robot:
        robot.say_hello()
        answer = robot.poll(robot.outbox, wait_ms=2500)
        assert (answer.status_code, answer.json()["reason"], answer.json()["closed"]) == (409, "two_programs", 4002)
    site.owner.on_report = site.owner.accept_report


def test_the_last_words_of_a_session_come_with_its_end(site: Site, robot: PollingRobot) -> None:
    """Messages and `closed` in one answer; after that there is no session."""
    site.owner.tell("hall-a", robot.robot, {"type": "superseded", "reason": "newer"})
    answer = until(lambda: (got := robot.poll([], seen=robot.seen).json()).get("closed") and got)
    assert answer["messages"] == [{"type": "superseded", "reason": "newer"}]
    assert (answer["closed"], answer["reason"]) == (4001, "newer")
    assert robot.poll([]).status_code == 410


def test_a_robot_that_never_fetches_is_dropped() -> None:
    """Its messages are kept up to a limit, then the session ends (4009)."""
    with Site(scripted=True, partitions=1, projector=False, send_buffer_bytes=10_000) as site:
        robot = site.polling_robot("lazy")
        robot.hello()
        for n in range(20):
            site.owner.tell("hall-a", "lazy", {"type": "cancel", "task": f"t{n}", "attempt": 1, "reason": "x" * 1000})
        until(lambda: not site.gateway.sessions)
        assert robot.expect_closed().code == 4009
        robot.leave()


def test_a_long_poll_is_taken_apart_as_it_was_sent(robot: PollingRobot) -> None:
    """Whatever stands around and inside the messages; the size that counts is the one that was sent."""
    pad = " " * (512 * 1024)
    inner = json.dumps({"type": "ready", "id": "in.1", "epoch": robot.epoch, "seq": 50, "n": 1, "x": ']},{"\\"é'})
    large = f'{{"type":"dance","id":"in.2",{pad}"n":1}}'
    body = f' {{ "seen": {robot.seen} , "messages" : [ {inner} ,{large} ] , "session": "{robot.session}" }} '
    path = f"/v1/pools/{robot.pool}/robots/{robot.robot}/poll"
    answer = robot.client.post(path, content=body.encode(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 200, answer.text
    assert robot.expect_where(lambda m: m.get("of") == "in.1")["type"] == "ack"
    assert robot.expect_where(lambda m: m.get("of") == "in.2")["reason"] == "too_large"
