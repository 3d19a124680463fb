"""What is wrong with a value is said in our words, not in those of the library that checks it."""

from __future__ import annotations

import json

import pytest

from commands.reasons import Refusal
from robot_gateway.models import TaskIn, read_model
from robot_gateway.reading import read_message


@pytest.mark.parametrize(
    ("task", "field", "text"),
    [
        ({"kind": "a b"}, "/kind", "use letters, digits and . _ : -, a letter or digit first"),
        ({"kind": "a", "priority": "high"}, "/priority", "write a whole number"),
        ({"kind": "a", "priority": 10}, "/priority", "write 9 or less"),
        ({"kind": "a", "requirement": "gpu"}, "/requirement", "write a list"),
        ({"kind": "a", "retry": 3}, "/retry", "write an object"),
        ({"kind": "a", "late": "maybe"}, "/late", "write one of accept or record"),
        ({"kind": 7}, "/kind", "write a text in quotes"),
    ],
)
def test_a_submission(task: dict[str, object], field: str, text: str) -> None:
    """The field, and what to write there."""
    found = read_model(TaskIn, json.dumps(task).encode())

    assert isinstance(found, Refusal)
    assert (found.field, found.text) == (field, text)


def test_a_robot_message() -> None:
    """The same words on a robot session."""
    message = {"type": "ready", "id": "b.1", "epoch": 1, "seq": 1, "n": "two"}
    _, refusal = read_message(json.dumps(message).encode())

    assert refusal is not None
    assert (refusal.field, refusal.text) == ("/n", "write a whole number")
