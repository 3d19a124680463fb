"""Errors: one class per reason, generated from the table; and the lazy public names."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fleetlog
from commands.reasons import REASONS
from robot_gateway import sdk
from robot_gateway.sdk import errors
from robot_gateway.sdk.resources import Task


@pytest.mark.parametrize("word", list(REASONS))
def test_every_reason_has_a_class(word: str) -> None:
    """Its name in capitals, its remedy as documentation, whether it is retryable; also under `fleetlog`."""
    cls = errors.BY_REASON[word]
    assert cls.__name__ == "".join(part.capitalize() for part in word.split("_"))
    assert issubclass(cls, errors.FleetlogError)
    error = cls("a sentence", retry_after_s=2.5, field="/kind", extra={"allowed": ["redrive"]})
    assert (error.reason, error.retryable, error.retry_after_s) == (word, REASONS[word].retryable, 2.5)
    assert (str(error), error.text, error.field, error.extra) == (
        "a sentence",
        "a sentence",
        "/kind",
        {"allowed": ["redrive"]},
    )
    assert cls.__doc__ == REASONS[word].remedy
    assert getattr(fleetlog, cls.__name__) is getattr(sdk, cls.__name__) is cls


def test_no_two_reasons_share_a_class() -> None:
    """Names are unique."""
    assert len({cls.__name__ for cls in errors.BY_REASON.values()}) == len(REASONS)


def test_a_reason_of_a_newer_gateway_is_kept() -> None:
    """A word that this version does not know becomes a FleetlogError with that word."""
    error = errors.error_of("brand_new", "a sentence")
    assert type(error) is errors.FleetlogError
    assert error.reason == "brand_new"


def test_how_a_task_ended_is_an_error() -> None:
    """TaskDead says why; the task is there."""
    task = Task.read({"id": "t1", "pool": "p", "state": "DEAD", "dead_reason": "poison"})
    dead = errors.TaskDead("dead", task)
    assert (dead.reason, dead.retryable, dead.task) == ("poison", False, task)
    cancelled = errors.TaskCancelled("gone", Task.read({"id": "t1", "pool": "p", "state": "CANCELLED"}))
    assert (cancelled.reason, cancelled.retryable) == ("cancelled", False)
    assert errors.WaitTimeout("late").retryable
    assert issubclass(errors.TaskDiscarded, errors.TaskEnded)


@pytest.mark.parametrize("name", sdk.__all__)
def test_public_names(name: str) -> None:
    """Each is there under `robot_gateway.sdk` and under `fleetlog`, with a docstring."""
    assert getattr(fleetlog, name) is getattr(sdk, name)
    assert getattr(sdk, name).__doc__


def test_names_that_are_not_there() -> None:
    """AttributeError, as everywhere."""
    for module in (fleetlog, sdk, errors):
        with pytest.raises(AttributeError):
            getattr(module, "Nonsense")  # noqa: B009
    assert sdk.errors is errors


def test_a_robot_loads_no_http_client_and_no_server() -> None:
    """What a robot imports: websockets and pydantic, nothing of httpx, FastAPI, Kafka or RocksDB."""
    program = "import sys; from fleetlog import Robot, TaskContext; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    tops = {name.partition(".")[0] for name in loaded}
    assert not tops & {"httpx", "fastapi", "starlette", "uvicorn", "confluent_kafka", "rocksdict", "typer", "rich"}
