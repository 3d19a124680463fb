"""Fuzzing of the gateway: whatever anybody sends, nothing breaks, and those beside work on.

One product for all of it, on the embedded log: HTTP by its own description, robots and submitters that say anything
over WebSockets and by polls, bytes that are hardly anything, awkward texts and JSON everywhere. The last test is the
verdict. FLEETLOG_FUZZ=50 makes it fifty times as long; FLEETLOG_INPUTS names more texts and bodies.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.amount import examples
from tests.fuzz.crew import POOL, Crew
from tests.fuzz.described import INVALID, VALID, ask_all
from tests.fuzz.frames import GOOD, GOOD_SUBMIT, JSON, TEXTS, Fields, frames
from tests.fuzz.placing import BODY_PLACES, bodies_as, in_requests, in_robots_messages, in_submissions, sent
from tests.fuzz.plain import Plain
from tests.fuzz.playing import play_by_polls, play_on_submit, play_on_websocket
from tests.fuzz.product import Fuzzed, open_submit

HANDSHAKE = (
    b"GET /v1/pools/hall-a/robots/raw/session HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade"
    b"\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    b"Sec-WebSocket-Protocol: fleetlog.robot.v1\r\n\r\n"
)
# Threads beside draw jitter while an example is drawn, which is no business of the example.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
played: Counter[str] = Counter()


def bytes_of(first: int, content: bytes, length: int | None, masked: bool) -> bytes:
    """A frame as it goes over the wire, right or not."""
    said = len(content) if length is None else length
    mask = 0x80 if masked else 0
    if said < 126:
        head = bytes([first, mask | said])
    elif said < 2**16:
        head = bytes([first, mask | 126]) + said.to_bytes(2, "big")
    else:
        head = bytes([first, mask | 127]) + said.to_bytes(8, "big")
    return head + (bytes(4) if masked else b"") + content


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    """One product for the module; its verdict is the last test."""
    with Fuzzed(tmp_path_factory.mktemp("fuzzed")) as running:
        crew = Crew(running.url)
        crew.prepare()
        running.crew = crew
        yield running
        crew.stop()


@pytest.mark.parametrize("mode", [VALID, INVALID], ids=["valid", "invalid"])
def test_no_request_of_the_description_is_a_fault(fuzzed: Fuzzed, mode: Any) -> None:
    """Valid or not: an answer, never a 5xx but 503 with a reason; every no is a problem with a word of the list."""
    asked = ask_all(fuzzed, mode)
    assert len(asked) > 50
    played[f"{mode.value} requests"] += asked.total()
    fuzzed.unharmed()


def test_every_text_in_every_field_of_a_submission(fuzzed: Fuzzed) -> None:
    """On one stream: each is answered, what is accepted is stored as it was sent, what is refused is not stored."""
    in_submissions(fuzzed)


def test_every_text_in_every_field_of_a_robots_message(fuzzed: Fuzzed) -> None:
    """Each is answered, in a session that goes on; only too many refusals end it."""
    in_robots_messages(fuzzed)


def test_every_text_in_paths_queries_headers_and_bodies(fuzzed: Fuzzed) -> None:
    """An answer, and every no is a problem with a word of the list."""
    in_requests(fuzzed)


@pytest.mark.parametrize("place", BODY_PLACES)
def test_every_body(fuzzed: Fuzzed, place: str) -> None:
    """JSON by the letter is taken as a payload, unless it breaks a limit of ours; what is not JSON is refused."""
    bodies_as(fuzzed, place)


def test_no_frame_of_a_robot_is_a_fault(fuzzed: Fuzzed) -> None:
    """After whatever was said, hello is answered, or the session was closed with a code of the list."""

    @given(
        st.lists(frames(GOOD), min_size=10, max_size=40),
        st.lists(st.integers(0, 30).map(lambda n: n == 0), max_size=40),
    )
    @examples(25)
    def play(said: list[Fields | bytes], as_bytes: list[bool]) -> None:
        played["websocket"] += play_on_websocket(fuzzed.url, POOL, said, as_bytes)

    play()
    fuzzed.unharmed()


def test_no_poll_is_a_fault(fuzzed: Fuzzed) -> None:
    """The same by polls, whose own fields are anything as well."""

    @given(
        st.lists(frames(GOOD), min_size=10, max_size=40),
        st.dictionaries(st.sampled_from(["session", "seen", "wait_ms", "messages", "x"]), JSON | TEXTS, max_size=1),
    )
    @examples(15)
    def play(said: list[Fields | bytes], changed: Fields) -> None:
        played["polls"] += play_by_polls(fuzzed.client, POOL, said, changed)

    play()
    fuzzed.unharmed()


def test_no_submission_is_a_fault(fuzzed: Fuzzed) -> None:
    """Every frame has one answer, on one connection that lives as long as they come."""
    with open_submit(fuzzed.url) as stream:

        @given(st.lists(frames(GOOD_SUBMIT), min_size=10, max_size=40))
        @examples(25)
        def play(said: list[Fields | bytes]) -> None:
            for frame, answer in play_on_submit(stream, said):
                fuzzed.note(json.loads(frame), answer)
            played["submit"] += len(said)

        play()
    fuzzed.unharmed()


FRAMES = st.builds(
    bytes_of,
    st.sampled_from([0x81, 0x81, 0x01, 0x00, 0x80, 0x82, 0x88, 0x89, 0x8A, 0x83, 0x8B, 0xC1, 0xF1, 0xFF]),
    st.sampled_from([b"", b"{}", b"\xff\xfe", b"\x03\xe8", b"\x03", b"\x00\x01x", b"x" * 126, b"x" * 70_000])
    | st.binary(max_size=20),
    st.sampled_from([None, None, None, 0, 125, 126, 127, 2**16, 2**40, 2**63]),
    st.sampled_from([True, True, True, True, False]),
)
"""One frame: first byte, content, a length that may be another one, and whether it is masked as it must be."""
HEADERS = st.sampled_from(
    [
        b"Host: 127.0.0.1",
        b"Host: [",
        b"Host: \xff",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Connection: close",
        b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        b"Sec-WebSocket-Key: \xff",
        b"Sec-WebSocket-Protocol: fleetlog.robot.v1",
        b"Sec-WebSocket-Extensions: permessage-deflate; x=\xff",
        b"Content-Length: 2",
        b"Content-Length: 0",
        b"Content-Length: -1",
        b"Content-Length: 99999999999999999999",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: gzip",
        b"Content-Type: application/json",
        b"Content-Encoding: gzip",
        b"Expect: 100-continue",
        b"Authorization: Bearer \xff",
        b"X-Long: " + b"y" * 9_000,
        b"X-Forwarded-For: \xff, [::",
        b": x",
        b"no colon",
        b" folded",
    ]
)
TARGETS = st.sampled_from(
    [
        b"/v1/tasks",
        b"/v1/pools/hall-a/tasks",
        b"/v1/pools/hall-a/robots/raw/session",
        b"/v1/pools/hall-a/robots/raw/poll",
        b"/v1/submit",
        b"/v1/pools/%ff/tasks/%00",
        b"/%ed%a0%80?%ed%a0%80=%ff",
        b"//v1//tasks",
        b"/v1/../v1/tasks",
        b"*",
        b"http://[/v1",
        b"/v1/tasks?where=%ff&where=%00&limit=1e3",
    ]
)
METHODS = st.sampled_from([b"GET", b"GET", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT", b"", b"G\xff"])


def test_no_bytes_are_a_fault(fuzzed: Fuzzed) -> None:
    """Requests that are hardly HTTP, and frames that are hardly frames: an answer below 500, or the connection ends."""
    plain = Plain(fuzzed.url)

    @given(
        METHODS, TARGETS, st.lists(HEADERS, max_size=9), st.sampled_from([b"", b"{}", b"2\r\n{}\r\n0\r\n\r\n", b"zz"])
    )
    @examples(60)
    def request(method: bytes, target: bytes, headers: list[bytes], body: bytes) -> None:
        head = b"\r\n".join([method + b" " + target + b" HTTP/1.1", *headers, b"", b""])
        for answer in re.findall(rb"HTTP/1\.1 (\d\d\d)", plain.raw(head + body)):
            assert int(answer) < 500, (head, body)
        played["requests"] += 1

    @given(st.lists(FRAMES, max_size=8))
    @examples(40)
    def frames_of(sent: list[bytes]) -> None:
        plain.raw(HANDSHAKE + b"".join(sent))
        played["bytes"] += len(sent)

    request()
    frames_of()
    fuzzed.unharmed()


def test_the_verdict(fuzzed: Fuzzed) -> None:
    """Those beside finish, nothing is half stored, and everything that is built from the log is the same."""
    print(f"fuzzed: {dict(played + sent)}")
    fuzzed.crew.stop()
    fuzzed.verdict()
