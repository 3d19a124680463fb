"""What every answer must be, whatever was asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from websockets.exceptions import ConnectionClosed

from commands.messages import CLOSE_CODES
from commands.reasons import REASONS

AWAY = frozenset({"behind", "log_unavailable", "not_ready"})
"""Reasons that 503 may have."""
TO_ROBOT = frozenset({"welcome", "assign", "ack", "refused", "heartbeat_ack", "cancel", "stop", "superseded", "moved"})
CLOSED = frozenset(CLOSE_CODES)


def check_http(status: int, headers: Mapping[str, str], body: bytes, about: Any) -> None:
    """No fault of ours, and every no in the one shape, with a word of the list."""
    if status < 400:
        assert headers.get("x-request-id"), about
        if headers.get("content-type") == "application/json":
            read(body)
        return
    if status == 400 and body == b"Invalid HTTP request received.":
        return  # what came was not HTTP at all
    assert headers.get("content-type") == "application/problem+json", (about, status, body[:500])
    problem = read(body)
    reason = problem["reason"]
    assert reason in REASONS, (about, problem)
    assert problem["status"] == status, (about, problem)
    assert problem["detail"], (about, problem)
    assert status < 500 or (status == 503 and reason in AWAY), (about, problem)
    assert reason not in ("internal", "quarantined"), (about, problem)


def check_message(text: str | bytes, about: Any) -> dict[str, Any]:
    """A message to a robot: JSON as we demand it of others, a type of the list, a reason of the list."""
    message: dict[str, Any] = read(text)
    assert message["type"] in TO_ROBOT, (about, message)
    if message["type"] == "refused":
        assert REASONS[message["reason"]].word not in ("internal", "quarantined"), (about, message)
        assert message["text"], (about, message)
    return message


def check_closed(closed: ConnectionClosed, about: Any) -> None:
    """The gateway ended a session: with a code of the list, and not because of a fault of ours."""
    assert closed.rcvd is not None, (about, "cut off")
    assert closed.rcvd.code in CLOSED, (about, closed.rcvd)
    assert closed.rcvd.code not in (1011, 1013), (about, closed.rcvd)


def check_submitted(text: str | bytes, about: Any) -> dict[str, Any]:
    """An answer of `/v1/submit`."""
    answer: dict[str, Any] = read(text)
    assert answer["type"] in ("accepted", "refused"), (about, answer)
    problems = [answer] if answer["type"] == "refused" else [t["problem"] for t in answer["tasks"] if "problem" in t]
    for problem in problems:
        assert problem["reason"] in REASONS, (about, problem)
        assert problem["reason"] not in ("internal", "quarantined"), (about, problem)
    return answer


def read(text: str | bytes) -> Any:
    """JSON without what JSON does not know."""

    def never(word: str) -> Any:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=never)
