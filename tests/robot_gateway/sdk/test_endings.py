"""What handlers return and raise, as reports; every report must decode strictly by the wire models."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest

from commands.messages import BODY_BYTES_MAX, decode_robot_message
from robot_gateway.sdk.endings import Ending, Why, completed, failed, final_report, raised
from robot_gateway.sdk.errors import Fatal, NotJson, Retry, Stopped
from robot_gateway.sdk.wire import encode_json, numbered


def str_of(value: Any) -> str:
    """A short name for a test."""
    return repr(value)[:20]


def report(ending: Ending, why: Why | None = None) -> Any:
    """The final report as the gateway reads it."""
    kind, body = final_report(Ending.load(ending.dump()), "boot.1", "t1", 2, why, 5)
    message = decode_robot_message(numbered(body, 3, 4))
    assert (message.type, message.task, message.attempt, message.epoch, message.seq) == (kind, "t1", 2, 3, 4)
    return message


@pytest.mark.parametrize(
    "result", [None, 0, "", [], {"a": None, "b": [1, "é\u2028\U0001f600"]}, "x" * (BODY_BYTES_MAX - 2)]
)
def test_results_arrive_as_they_were_returned(result: Any) -> None:
    """Nulls inside stay, whatever the letters."""
    assert report(completed(result)).result == result


@pytest.mark.parametrize(
    "result",
    [float("nan"), {"a": float("inf")}, {1, 2}, datetime.date(2026, 1, 1), b"x", "\ud800", {"deep": object()}],
    ids=["nan", "inf", "set", "date", "bytes", "surrogate", "object"],
)
def test_what_is_not_json_is_a_fatal_failure(result: Any) -> None:
    """It would be again."""
    failure = report(completed(result))
    assert (failure.failure_class, failure.error.type) == ("fatal", "NotJson")


def test_a_result_one_byte_too_large_is_a_fatal_failure() -> None:
    """With a sentence that says what to do."""
    failure = report(completed("x" * (BODY_BYTES_MAX - 1)))
    assert (failure.failure_class, failure.error.type) == ("fatal", "TooLarge")
    assert "store it and return a reference" in failure.error.message


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (Fatal("no"), ("fatal", "Fatal", "no", None)),
        (Retry("later"), ("retryable", "Retry", "later", None)),
        (Retry("later", after_s=1.5), ("retryable", "Retry", "later", 1500)),
        (ValueError("odd"), ("fatal", "ValueError", "odd", None)),
        (UnicodeError("odd"), ("fatal", "UnicodeError", "odd", None)),
        (KeyError("x"), ("retryable", "KeyError", "'x'", None)),
        (SystemExit(3), ("retryable", "SystemExit", "3", None)),
    ],
    ids=repr,
)
def test_exceptions_by_class(problem: BaseException, expected: tuple[Any, ...]) -> None:
    """Fatal and Retry say it themselves; others are retryable unless of a type named as fatal (subclasses too)."""
    failure = report(raised(problem, (ValueError,)))
    assert (failure.failure_class, failure.error.type, failure.error.message, failure.retry_after_ms) == expected


def test_unexpected_exceptions_carry_their_traceback() -> None:
    """In the detail, bounded."""

    def deep(n: int) -> None:
        if n == 0:
            raise RuntimeError("x" * 5000)
        deep(n - 1)

    with pytest.raises(RuntimeError) as problem:
        deep(200)
    failure = report(raised(problem.value))
    assert len(failure.error.message) == 1000
    assert failure.error.detail["traceback"].endswith("x\n")
    assert len(encode_json(failure.error.detail)) <= 16 * 1024


def test_details_that_cannot_be_sent_are_left_out() -> None:
    """Not JSON, or above 16 KiB: the failure is still told."""
    assert report(failed("E", "m", detail={"a": 1})).error.detail == {"a": 1}
    assert report(failed("E", "m", detail={1, 2})).error.detail is None
    assert report(failed("E", "m", detail="x" * 16 * 1024)).error.detail is None


def test_awkward_texts_of_exceptions() -> None:
    """Lone surrogates and long types are made fit."""
    failure = report(raised(type("X" * 200, (Exception,), {})("\ud800")))
    assert len(failure.error.type) == 128
    assert failure.error.message == "?"


@pytest.mark.parametrize("why", ["cancel", "stop", "own_deadline", "shutdown"])
def test_stopped_says_why(why: Why) -> None:
    """With a checkpoint if the handler gave one."""
    assert report(raised(Stopped()), why).why == why
    saved = report(raised(Stopped(checkpoint={"at": 7})), why)
    assert (saved.checkpoint.number, saved.checkpoint.value) == (5, {"at": 7})


def test_stopping_unasked_is_a_failure() -> None:
    """Nobody had told the handler."""
    assert report(raised(Stopped())).type == "fail"


def test_not_json_is_a_value_error() -> None:
    """So that callers may catch either."""
    with pytest.raises(NotJson):
        encode_json({"a": [float("nan")]})
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ValueError, match="not a JSON value"):
        encode_json(nested)
    assert json.loads(encode_json({"é": 1})) == {"é": 1}
