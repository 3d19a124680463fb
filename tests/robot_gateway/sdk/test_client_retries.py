"""What is retryable is sent again by itself, with the same command id; what is not is not. The server is scripted."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from robot_gateway.sdk import AsyncClient, Client, errors
from robot_gateway.sdk.sse import EventLines
from tests.support.ports import free_port

TASK = {"id": "t1", "pool": "default", "state": "WAITING"}


class Scripted:
    """Answers requests with what `answers` says, in order, and remembers them. None: breaks the connection."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any, dict[str, str]] | None] = []
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                scripted.requests.append((self.command, self.path, dict(self.headers.items()), body))
                answer = scripted.answers.pop(0)
                if answer is None:
                    self.close_connection = True
                    return
                status, told, headers = answer
                raw = told if isinstance(told, bytes) else json.dumps(told).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            do_GET = do_POST = answer

            def log_message(self, *_: object) -> None:
                """Tests print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def refuse(self, status: int, reason: str, **more: Any) -> None:
        """The next answer is a problem."""
        self.answers.append((status, {"reason": reason, "detail": f"it is {reason}", "status": status} | more, {}))

    def accept(self, told: Any = TASK, **headers: str) -> None:
        """The next answer is this."""
        self.answers.append((200, told, headers))


@pytest.fixture
def server() -> Iterator[Scripted]:
    """A server by script."""
    scripted = Scripted()
    yield scripted
    scripted.server.shutdown()
    scripted.server.server_close()


@pytest.fixture(params=["sync", "async"])
def submit(request: pytest.FixtureRequest, server: Scripted) -> Any:
    """submit("echo") by either client."""
    if request.param == "sync":
        return lambda **options: Client(server.url, **options).submit("echo", 1).id

    def submit_async(**options: Any) -> Any:
        async def play() -> str:
            async with AsyncClient(server.url, **options) as client:
                return (await client.submit("echo", 1)).id

        return asyncio.run(play())

    return submit_async


def test_the_same_command_id_until_it_is_accepted(server: Scripted, submit: Any) -> None:
    """429 with a time, 503, a broken connection, 504: one command, sent five times."""
    server.refuse(429, "gateway_busy", retry_after_s=0.3)
    server.refuse(503, "log_unavailable")
    server.answers.append(None)
    server.refuse(504, "no_answer")
    server.accept()
    begun = time.monotonic()
    assert submit() == "t1"
    assert time.monotonic() - begun >= 0.3
    assert len(server.requests) == 5
    assert len({headers["Idempotency-Key"] for _, _, headers, _ in server.requests}) == 1
    assert len({body for _, _, _, body in server.requests}) == 1


@pytest.mark.parametrize(("status", "reason"), [(422, "invalid_field"), (409, "id_conflict"), (403, "forbidden")])
def test_what_is_not_retryable_is_asked_once(server: Scripted, submit: Any, status: int, reason: str) -> None:
    """The error of that reason, with its sentence."""
    server.refuse(status, reason, field="/kind")
    with pytest.raises(errors.BY_REASON[reason], match=f"it is {reason}") as refused:
        submit()
    assert refused.value.field == "/kind"
    assert len(server.requests) == 1


def test_the_tries_end(server: Scripted, submit: Any) -> None:
    """After `retry_for_s`, or at once when Fleetlog asks for a longer wait than that."""
    server.refuse(429, "queue_full", retry_after_s=60)
    with pytest.raises(errors.QueueFull) as full:
        submit(retry_for_s=1)
    assert full.value.retry_after_s == 60
    server.answers += [(503, {"reason": "not_ready", "detail": "wait"}, {})] * 100
    with pytest.raises(errors.NotReady):
        submit(retry_for_s=0.3)


def test_nobody_there() -> None:
    """NoAnswer with the address: asking again with the same command id is safe."""
    with pytest.raises(errors.NoAnswer, match=r"no answer from http://127\.0\.0\.1"):
        Client(f"http://127.0.0.1:{free_port()}", retry_for_s=0.1).submit("echo")


def test_something_that_is_not_fleetlog(server: Scripted, submit: Any) -> None:
    """A page of some other server: said so."""
    server.answers.append((404, b"<html>not found</html>", {}))
    with pytest.raises(errors.NoSuchRoute, match="not an answer of Fleetlog"):
        submit()


def test_retryable_ones_of_many_are_sent_again_as_a_whole(server: Scripted) -> None:
    """The same request, same command id: what was accepted is answered as it was."""
    problem = {"reason": "queue_full", "detail": "full", "retry_after_s": 0.1}
    accepted = {"status": 201, "task": TASK}
    server.accept({"tasks": [accepted, {"status": 429, "problem": problem}], "position": "p"})
    server.accept({"tasks": [accepted, {"status": 201, "task": TASK | {"id": "t2"}}], "position": "p"})
    handles = Client(server.url).submit_many([{"kind": "echo"}, {"kind": "echo"}])
    assert [handle.id for handle in handles] == ["t1", "t2"]
    assert len({headers["Idempotency-Key"] for _, _, headers, _ in server.requests}) == 1


def test_reads_ask_for_what_was_done_before(server: Scripted) -> None:
    """`after` is the position of this client's last command in that pool; the token goes with everything."""
    server.accept(**{"Fleetlog-Position": "here"})
    server.accept()
    server.accept()
    client = Client(server.url, token="secret")
    client.submit("echo")
    client.task("t1")
    client.task("t1", pool="other")
    paths = [path for _, path, _, _ in server.requests]
    assert paths[1:] == ["/v1/pools/default/tasks/t1?after=here", "/v1/pools/other/tasks/t1"]
    assert {headers["Authorization"] for _, _, headers, _ in server.requests} == {"Bearer secret"}


def test_a_stream_that_breaks_goes_on_from_its_last_position(server: Scripted) -> None:
    """Last-Event-ID; `dropped` and comments are no events."""
    part = b': hello\n\nid: p1\nevent: TaskSubmitted.v1\ndata: {"n": 1}\n\n'
    server.answers.append((200, part, {}))
    server.answers.append((200, b"event: dropped\ndata: slow\n\n", {}))
    server.answers.append((200, b'id: p2\nevent: TaskSubmitted.v1\ndata: {"n": 2}\n\n', {}))
    server.refuse(400, "unknown_position")
    stream = Client(server.url).stream(types=["TaskSubmitted"])
    assert [(event.data["n"], event.position) for event in (next(stream), next(stream))] == [(1, "p1"), (2, "p2")]
    with pytest.raises(errors.UnknownPosition):
        next(stream)
    assert [headers.get("Last-Event-ID") for _, _, headers, _ in server.requests] == [None, "p1", "p1", "p2"]


def test_lines_of_a_stream() -> None:
    """Several data lines are one; fields without a space; unknown fields; nothing without data."""
    lines = EventLines()
    feed = ["id:7", "event:x", "data:[1,", "data: 2]", "retry: 5", "colour: red"]
    assert [lines.feed(line) for line in feed] == [None] * 6
    event = lines.feed("")
    assert event is not None
    assert (event.type, json.dumps(event.data), event.position) == ("x", "[1, 2]", "7")
    assert lines.feed("") is None
    assert not lines.dropped
