"""Submissions over one pipelined connection: against the product, and against a server by script."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from robot_gateway.sdk import Submitter, errors
from tests.support.fleet import CEILING_S, Fleet, until


def test_thousands_are_submitted_once_each(fleet: Fleet, pool: str) -> None:
    """3,000 tasks through one connection: 3,000 different tasks, all of them in the log."""
    with fleet.client(pool) as client:
        with client.submitter() as submitter:
            futures = [submitter.submit("wait-here", {"n": n}) for n in range(3000)]
        tasks = [future.result(CEILING_S) for future in futures]
        assert len({task.id for task in tasks}) == 3000
        assert {task.state for task in tasks} == {"WAITING"}
        assert client.task(tasks[-1].id, after=tasks[-1].position).raw["kind"] == "wait-here"


def test_refusals_are_exceptions_of_their_future(fleet: Fleet, pool: str) -> None:
    """The others are not touched; many in one message have one answer each."""
    with Submitter(fleet.url, pool=pool) as submitter:
        good = submitter.submit("echo", 1, id="a")
        bad = submitter.submit("no spaces")
        conflict = submitter.submit("echo", 2, id="a")
        many = submitter.submit_many([{"kind": "echo", "id": "b"}, {"kind": "echo", "id": "a", "payload": 3}])
        assert good.result(CEILING_S).id == "a"
        with pytest.raises(errors.InvalidField):
            bad.result(CEILING_S)
        with pytest.raises(errors.IdConflict):
            conflict.result(CEILING_S)
        first, second = many.result(CEILING_S)
        assert first.task is not None
        assert second.error is not None
        assert (first.task.id, second.error.reason) == ("b", "id_conflict")


def test_in_flight_is_bounded() -> None:
    """By its own limit and by the gateway's."""
    for wrong in (0, 1025):
        with pytest.raises(ValueError, match="from 1 to 1024"):
            Submitter("http://127.0.0.1:9", in_flight=wrong)


class Scripted:
    """A submit server that answers only when the test says so, and breaks connections when it says so."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        self.received: list[dict[str, Any]] = []
        self.connections = 0
        self.lock = threading.Lock()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                self.sock, _ = self.listening.accept()
            except OSError:
                return
            self.protocol = ServerProtocol(subprotocols=[Subprotocol("fleetlog.submit.v1")], max_size=2**24)
            self.connections += 1
            try:
                while data := self.sock.recv(65536):
                    with self.lock:
                        self._take(data)
            except OSError:
                continue

    def _take(self, data: bytes) -> None:
        self.protocol.receive_data(data)
        for event in self.protocol.events_received():
            if isinstance(event, Request):
                self.protocol.send_response(self.protocol.accept(event))
            elif isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                self.received.append(json.loads(bytes(event.data)))
        self._flush()

    def _flush(self) -> None:
        self.sock.sendall(b"".join(self.protocol.data_to_send()))

    def say(self, message: dict[str, Any]) -> None:
        """Send a message."""
        with self.lock:
            self.protocol.send_text(json.dumps(message).encode())
            self._flush()

    def accept(self, asked: dict[str, Any]) -> None:
        """Accept a submission."""
        tasks = [{"status": 201, "task": {"id": asked["id"], "pool": "default"}} for _ in asked["tasks"]]
        self.say({"type": "accepted", "of": asked["id"], "tasks": tasks, "position": "p"})

    def cut(self) -> None:
        """Break the connection."""
        self.sock.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def server() -> Iterator[Scripted]:
    """A server by script."""
    scripted = Scripted()
    yield scripted
    scripted.listening.close()


def test_what_has_no_answer_is_sent_again_on_the_next_connection(server: Scripted) -> None:
    """Same ids and content; what was answered is not."""
    with Submitter(server.url) as submitter:
        futures = [submitter.submit("echo", n) for n in range(10)]
        until(lambda: len(server.received) == 10, "ten submissions")
        for asked in server.received[:4]:
            server.accept(asked)
        for future in futures[:4]:
            future.result(CEILING_S)
        before, connections = server.received[4:], server.connections
        server.received = []
        server.cut()
        until(lambda: len(server.received) == 6, "six again")
        assert server.received == before
        assert server.connections > connections
        for asked in server.received:
            server.accept(asked)
        assert [future.result(CEILING_S).id for future in futures[4:]] == [asked["id"] for asked in before]


def test_no_more_than_in_flight_is_sent(server: Scripted) -> None:
    """The third waits until one of two has its answer."""
    with Submitter(server.url, in_flight=2) as submitter:
        submitter.submit("echo", 1), submitter.submit("echo", 2)
        third = threading.Thread(target=lambda: submitter.submit("echo", 3))
        third.start()
        until(lambda: len(server.received) == 2, "two submissions")
        time.sleep(0.2)
        assert len(server.received) == 2
        server.accept(server.received[0])
        until(lambda: len(server.received) == 3, "the third")
        third.join(CEILING_S)
        for asked in server.received[1:]:
            server.accept(asked)


def test_what_is_retryable_is_sent_again_at_its_time(server: Scripted) -> None:
    """queue_full with a time: the same id again after it; then accepted."""
    with Submitter(server.url) as submitter:
        future = submitter.submit("echo", 1)
        until(lambda: server.received, "the submission")
        begun = time.monotonic()
        asked = server.received[0]
        full = {"type": "refused", "of": asked["id"], "reason": "queue_full", "text": "full", "retry_after_s": 0.4}
        server.say(full)
        until(lambda: len(server.received) == 2, "the repeat")
        assert time.monotonic() - begun >= 0.4
        assert server.received[1] == asked
        assert not future.done()
        server.accept(asked)
        assert future.result(CEILING_S).id == asked["id"]


def test_closed_before_an_answer(server: Scripted) -> None:
    """NoAnswer: it may have been accepted; the same command id may be sent again. Then nothing more is taken."""
    submitter = Submitter(server.url)
    future = submitter.submit("echo", 1)
    until(lambda: server.received, "the submission")
    with pytest.raises(errors.NoAnswer):
        submitter.flush(0.1)
    submitter.close()
    with pytest.raises(errors.NoAnswer):
        future.result(CEILING_S)
    with pytest.raises(errors.NoAnswer):
        submitter.submit("echo", 2)


def test_a_connection_that_is_forbidden(server: Scripted) -> None:
    """4003: everything without an answer fails with Forbidden, nothing is tried again."""
    submitter = Submitter(server.url)
    future = submitter.submit("echo", 1)
    until(lambda: server.received, "the submission")
    connections = server.connections
    with server.lock:
        server.protocol.send_close(4003, "the token was withdrawn")
        server._flush()
    with pytest.raises(errors.Forbidden):
        future.result(CEILING_S)
    submitter.close()
    assert server.connections == connections
