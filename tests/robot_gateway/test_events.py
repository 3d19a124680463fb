"""Events over HTTP: pages of the log, and the stream that resumes without a gap or a repeat."""

import asyncio
import json
import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from robot_gateway import stream
from robot_gateway.routes import events
from robot_gateway.wire import instant_text
from streams.port import Record, Topic
from tests.support.site import Site, until


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Real owners and tables on three partitions."""
    with Site() as running:
        yield running


class SseReader:
    """A reader of `/v1/stream` in a thread: events as (id, type, data) in `events`."""

    def __init__(self, site: Site, last: str | None = None, **params: Any) -> None:
        self.events: queue.SimpleQueue[tuple[str, str, Any]] = queue.SimpleQueue()
        self.comments = 0
        self.ended = threading.Event()
        self._opened = threading.Event()
        self._response: httpx.Response | None = None
        headers = {} if last is None else {"Last-Event-ID": last}
        self._thread = threading.Thread(target=self._read, args=(site, headers, params), daemon=True)
        self._thread.start()
        assert self._opened.wait(60)

    def _read(self, site: Site, headers: dict[str, str], params: dict[str, Any]) -> None:
        try:
            with httpx.stream("GET", f"{site.url}/v1/stream", params=params, headers=headers, timeout=60) as response:
                self._response = response
                assert response.headers["Content-Type"].startswith("text/event-stream")
                fields: dict[str, str] = {}
                for line in response.iter_lines():
                    if line.startswith(":"):
                        self.comments += 1
                        self._opened.set()
                    elif line == "":
                        if "data" in fields:
                            self.events.put((fields.get("id", ""), fields["event"], json.loads(fields["data"])))
                        fields = {}
                    else:
                        name, _, value = line.partition(": ")
                        fields[name] = value
        except (httpx.HTTPError, httpx.StreamError, AssertionError):
            pass
        finally:
            self._opened.set()
            self.ended.set()

    def next(self) -> tuple[str, str, Any]:
        return self.events.get(timeout=60)

    def close(self) -> None:
        if self._response is not None:
            with_socket = self._response.extensions.get("network_stream")
            if with_socket is not None:
                with_socket.close()
        self._thread.join(60)


@contextmanager
def reading(site: Site, last: str | None = None, **params: Any) -> Iterator[SseReader]:
    reader = SseReader(site, last, **params)
    try:
        yield reader
    finally:
        reader.close()


def all_events(site: Site, **params: Any) -> list[dict[str, Any]]:
    """Every event that the pages give."""
    found: list[dict[str, Any]] = []
    while True:
        answer = site.client.get("/v1/events", params=params)
        assert answer.status_code == 200, answer.text
        found += answer.json()["items"]
        if answer.json()["next"] is None:
            return found
        params["cursor"] = answer.json()["next"]


# ---- pages ----


def test_pages_give_every_event_once_as_stored(site: Site) -> None:
    """Byte for byte, each pool in its order, whatever the size of a page."""
    for pool in ("pa", "pb", "pc", "pd"):
        for _ in range(5):
            site.submit(pool)
    stored = {
        record.value
        for partition in range(3)
        for record in site.store.place(Topic.EVENTS, partition).records
        if record.key in ("pa", "pb", "pc", "pd")
    }

    whole = site.client.get("/v1/events", params={"limit": 1000, "where": "pool=p*"})
    found = all_events(site, limit=3, where="pool=p*")

    for value in stored:
        assert value in whole.content
    assert len(found) == len(stored)
    assert {event["id"] for event in found} == {json.loads(value)["id"] for value in stored}
    for pool in ("pa", "pb", "pc", "pd"):
        sequences = [event["sequence"] for event in found if event["pool"] == pool]
        assert sequences == sorted(sequences)


def test_pages_are_filtered_by_type_pool_task_and_time(site: Site) -> None:
    """Each alone and together."""
    before = time.time_ns() // 1_000_000
    task = site.submit("pf")["id"]
    site.client.post(f"/v1/pools/pf/tasks/{task}/cancel")
    after = time.time_ns() // 1_000_000 + 1

    def types(**params: Any) -> list[str]:
        return [event["type"] for event in all_events(site, **params)]

    assert types(where="pool=pf", types="TaskCancelled,TaskSubmitted.v1") == ["TaskSubmitted.v1", "TaskCancelled.v1"]
    assert types(where=f"task={task}") == ["TaskSubmitted.v1", "TaskCancelled.v1"]
    assert types(where="pool=pf kind=weld", types="TaskCancelled") == ["TaskCancelled.v1"]
    assert types(where="pool=pf kind=paint") == []
    assert types(where="pool=pf state=CANCELLED") == ["TaskCancelled.v1"]
    here = {"where": f"task={task}"}
    assert len(types(**here, **{"from": instant_text(before - 1000), "to": instant_text(after)})) == 2
    assert types(**here, **{"from": instant_text(after + 60_000)}) == []
    assert types(**here, to=instant_text(before - 60_000)) == []


# ---- the stream ----


def test_a_reader_of_the_past_is_not_moved_by_the_present() -> None:
    """What the others have seen says nothing about what this one has read; what it has read comes once."""

    def record(offset: int) -> Record:
        return Record(Topic.EVENTS, 0, offset, "p", b"%d" % offset, (), 0)

    async def read() -> list[int]:
        reader = stream.Reader({0: 3}, lambda record: record.value)
        reader.passed({0: 100})
        assert reader.offsets == {0: 3}
        reader.offer(record(2))
        for offset in (3, 5, 7):
            reader.offer(record(offset))
        reader.seen(record(5))
        reader.live = True
        reader.passed({0: 100})
        found = await reader.take(60)
        reader.passed({0: 100})
        return [] if found is None else [found[0].offset, reader.offsets[0]]

    assert asyncio.run(read()) == [7, 100]


def test_the_stream_begins_now_and_says_what_happens(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Id, type and the event as stored; what was before is not said."""
    monkeypatch.setattr(events, "COMMENT_EVERY_S", 0.2)
    site.submit("sa", id="before")
    with reading(site, where="pool=sa") as reader:
        site.submit("sa", id="after")
        position, kind, event = reader.next()
        assert (kind, event["task"]) == ("TaskSubmitted.v1", "after")
        assert position.startswith(site.store.log_id[:8] + "~")
    until(lambda: site.gateway.hub._live is None, "the end of the thread that follows events")


def test_a_reader_resumes_without_a_gap_or_a_repeat(site: Site) -> None:
    """From any id, while events go on, several times; also from the position of an answer."""
    expected: list[tuple[str, int]] = []
    position = site.submit("ra", id="first")["position"]
    stop = threading.Event()

    def submit() -> None:
        n = 0
        while not stop.is_set():
            for pool in ("ra", "rb", "rc"):
                site.submit(pool)
            n += 1

    busy = threading.Thread(target=submit)
    busy.start()
    last, seen = position, []
    try:
        for _ in range(6):
            with reading(site, last, types="TaskSubmitted", where="pool=r*") as reader:
                for _ in range(40):
                    last, _, event = reader.next()
                    seen.append((event["pool"], event["sequence"]))
    finally:
        stop.set()
        busy.join()
    expected = [
        (event["pool"], event["sequence"])
        for event in all_events(site, where="pool=r*", types="TaskSubmitted", limit=1000)
        if event.get("task") != "first"
    ]
    assert len(seen) == len(set(seen)) == 240
    for pool in ("ra", "rb", "rc"):
        mine = [sequence for name, sequence in seen if name == pool]
        all_of_it = [sequence for name, sequence in expected if name == pool]
        if pool == "ra":
            assert mine == all_of_it[: len(mine)]
        else:
            start = all_of_it.index(mine[0])
            assert mine == all_of_it[start : start + len(mine)]


def test_an_id_of_another_log_is_refused(site: Site) -> None:
    """400 unknown_position."""
    for last in ("nonsense", "00000000~0:5", f"{site.store.log_id[:8]}~0:999999"):
        answer = site.client.get("/v1/stream", headers={"Last-Event-ID": last})
        assert (answer.status_code, answer.json()["reason"]) == (400, "unknown_position")


def test_silence_is_broken_by_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that proxies and clients know that the line is alive."""
    monkeypatch.setattr(events, "COMMENT_EVERY_S", 0.05)
    with Site(scripted=True) as quiet, reading(quiet) as reader:
        until(lambda: reader.comments >= 4)


def test_a_reader_that_does_not_keep_up_is_told_and_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """`event: dropped`, then the end; from the last id it goes on where it was."""
    monkeypatch.setattr(stream, "QUEUED_MAX", 20)
    monkeypatch.setattr(events, "SENT_WITHIN_S", 600.0)
    with Site(partitions=1) as site:
        site.submit("slow")
        with deaf_reader(site, "/v1/stream?where=pool%3Dslow&types=TaskSubmitted") as deaf:
            until(lambda: site.gateway.hub._readers)
            tasks = [{"kind": "weld", "payload": "x" * 200_000}] * 15

            def dropped() -> bool:
                site.client.post("/v1/pools/slow/tasks", json={"tasks": tasks})
                return any(reader._slow for reader in site.gateway.hub._readers)

            until(dropped)
            said = read_to_the_end(deaf)
        assert said.rstrip(b"\r\n0").endswith(b'resume from the last id"}')
        lines = said.decode().splitlines()
        seen = [json.loads(line[6:])["sequence"] for line in lines if line.startswith('data: {"id"')]
        last = [line[4:] for line in lines if line.startswith("id: ")][-1]
        wanted = [e["sequence"] for e in all_events(site, where="pool=slow", types="TaskSubmitted", limit=50)]
        assert seen == wanted[1 : len(seen) + 1]
        with reading(site, last, where="pool=slow", types="TaskSubmitted") as again:
            assert again.next()[2]["sequence"] == wanted[len(seen) + 1]


@contextmanager
def deaf_reader(site: Site, path: str) -> Iterator[socket.socket]:
    """A connection that has asked for `path` and reads nothing."""
    host, port = site.url.removeprefix("http://").split(":")
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        deaf.connect((host, int(port)))
        deaf.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        yield deaf


def read_to_the_end(deaf: socket.socket) -> bytes:
    """Everything up to the last chunk."""
    said = b""
    while not said.endswith(b"\r\n0\r\n\r\n") and (piece := deaf.recv(1 << 20)):
        said += piece
    return b"".join(part for n, part in enumerate(said.split(b"\r\n\r\n", 1)[1].split(b"\r\n")) if n % 2)


def test_a_gateway_that_stops_ends_its_streams() -> None:
    """The reader is told to resume elsewhere."""
    with Site(scripted=True) as site:
        reader = SseReader(site)
    assert reader.next()[1] == "dropped"
    reader.close()
