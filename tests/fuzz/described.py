"""Every path of the HTTP API with what its own description allows, and with what it does not: by schemathesis."""

from __future__ import annotations

import copy
from collections import Counter
from contextlib import suppress
from typing import Any

import requests
import schemathesis
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from tests.fuzz.amount import examples
from tests.fuzz.answers import check_http
from tests.fuzz.crew import KINDS, POOL, ROBOTS, SCHEDULES, TARGETS, TASKS
from tests.fuzz.product import Fuzzed
from tests.support.fleet import CEILING_S

KNOWN = {
    "pool": (POOL,),
    "task": TASKS,
    "robot": ROBOTS,
    "target": TARGETS,
    "kind": KINDS,
    "schedule": SCHEDULES,
    "name": KINDS,
    "where": ("state=DEAD", "kind=o*", "older=2h priority>=7", "label.line=3 target!=dock-1"),
    "sort": ("submitted", "-priority"),
    "types": ("TaskAssigned", "TaskCompleted,TaskSubmitted"),
    "reason": ("no_such_task", "internal"),
    "number": (0, 1, 2**63, -(2**63)),
}
VALID, INVALID = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
ENDLESS = {"/v1/stream"}


def described(fuzzed: Fuzzed, mode: GenerationMode) -> list[Any]:
    """The operations of the description without long waits; for valid requests names of things that exist as well."""
    document = copy.deepcopy(fuzzed.client.get("/openapi.json").json())
    for methods in document["paths"].values():
        for operation in methods.values():
            for parameter in operation.get("parameters", ()):
                _shorten(parameter)
                if mode is VALID:
                    _lead(parameter, fuzzed.crew.position)
    document["components"]["schemas"]["PollIn"]["properties"]["wait_ms"]["maximum"] = 20
    schema = schemathesis.openapi.from_dict(document)
    found: list[Any] = [one.ok() for one in schema.get_all_operations() if isinstance(one, Ok)]
    return [operation for operation in found if operation.path not in ENDLESS]


def _shorten(parameter: dict[str, Any]) -> None:
    if parameter["name"] == "wait_s":
        parameter["schema"]["maximum"] = 0.05


def _lead(parameter: dict[str, Any], position: str) -> None:
    name = parameter["name"]
    known = (position,) if name == "after" else KNOWN.get(name, ())
    if known:
        parameter["schema"] = {"anyOf": [{"enum": list(known)}, parameter["schema"]]}


def ask_all(fuzzed: Fuzzed, mode: GenerationMode) -> Counter[str]:
    """Asks every operation, as its description says (positive) or not (negative). How often each was asked."""
    asked: Counter[str] = Counter()
    with requests.Session() as session:
        for operation in described(fuzzed, mode):

            @given(case=operation.as_strategy(generation_mode=mode), somewhere=st.booleans())
            @examples(2)
            def ask(case: Any, somewhere: bool) -> None:
                asked[f"{case.method} {case.path}"] += 1
                if mode is INVALID and somewhere:
                    # So that what is wrong is not always the path.
                    case.path_parameters = {word: KNOWN.get(word, ("x",))[0] for word in case.path_parameters or {}}
                words = case.as_transport_kwargs(base_url=fuzzed.url)
                answer = session.request(timeout=CEILING_S, **words)
                headers = {name.lower(): value for name, value in answer.headers.items()}
                check_http(answer.status_code, headers, answer.content, words)

            with suppress(Unsatisfiable):  # nothing that it takes can be wrong
                ask()
    return asked
