"""From the words of `fleetlog submit` to tasks: payloads, deadlines, retry, and files of many lines."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from fleetlog.choosing import body
from fleetlog.problems import Problem, wrong_usage
from fleetlog.when import instant

LINES_AT_ONCE: Final = 500
BYTES_AT_ONCE: Final = 2 * 1024 * 1024


def payload_of(text: str | None) -> Any:
    """JSON, `@FILE`, `-` (standard input), or a bare text that is taken as a string. Raises Problem."""
    if text is None:
        return None
    where = "--payload"
    if text == "-":
        text, where = sys.stdin.read(), "standard input"
    elif text.startswith("@"):
        where = text[1:]
        text = read_text(Path(where))
    return json_or_text(text, where)


def json_or_text(text: str, where: str) -> Any:
    """JSON where the text is JSON; what begins like JSON must be JSON; anything else is a string."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        if text.lstrip()[:1] in ("{", "[", '"'):
            raise wrong_usage(f"{where} begins like JSON but is none ({error}): correct it.") from None
        return text.rstrip("\n")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def read_text(path: Path) -> str:
    """What stands in a file. Raises Problem."""
    try:
        return path.read_text()
    except OSError as error:
        raise wrong_usage(f"{path} cannot be read ({(error.strerror or '').lower()}): check the path.") from None
    except UnicodeDecodeError:
        raise wrong_usage(f"{path} is not UTF-8 text: put the data into a store and send a reference to it.") from None


def labels_of(given: list[str] | None) -> dict[str, str] | None:
    """Labels from NAME=VALUE. Raises Problem."""
    if not given:
        return None
    labels = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise wrong_usage(f"--label {text!r} is not NAME=VALUE.")
        labels[name] = value
    return labels


def deadlines_of(
    start_by: str | None, end_by: str | None, run_within: float | None, then: str
) -> dict[str, Any] | None:
    """The deadlines that were given, each with what happens when it passes."""
    found: dict[str, Any] = {}
    if start_by is not None:
        found["start"] = {"at": instant(start_by, "--start-by"), "then": then}
    if end_by is not None:
        found["end"] = {"at": instant(end_by, "--end-by"), "then": then}
    if run_within is not None:
        found["run"] = {"s": run_within, "then": then}
    return found or None


def lines_of(path: str, kind: str | None, shared: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and task of every line: with a kind each line is a payload, without one a whole task. Raises Problem."""
    source = sys.stdin if path == "-" else _open(Path(path))
    with source:
        try:
            for number, line in enumerate(source, 1):
                if line.strip():
                    yield number, _task_of(line.strip(), f"line {number} of {path}", kind, shared)
        except UnicodeDecodeError:
            raise wrong_usage(f"{path} is not UTF-8 text: correct it.") from None


def _open(path: Path) -> Any:
    try:
        return path.open()
    except OSError as error:
        raise wrong_usage(f"{path} cannot be read ({(error.strerror or '').lower()}): check the path.") from None


def _task_of(line: str, where: str, kind: str | None, shared: dict[str, Any]) -> dict[str, Any]:
    value = json_or_text(line, where)
    if kind is not None:
        return shared | {"kind": kind, "payload": value}
    if not isinstance(value, dict) or "kind" not in value:
        raise Problem(
            f"{where} is not a task: write an object with a kind, or name the kind and let each line be a payload.", 2
        )
    return shared | value


def in_batches(lines: Iterator[tuple[int, dict[str, Any]]]) -> Iterator[list[tuple[int, dict[str, Any]]]]:
    """Lines in groups that fit into one request."""
    group: list[tuple[int, dict[str, Any]]] = []
    size = 0
    for number, task in lines:
        length = len(json.dumps(task, ensure_ascii=False).encode())
        if group and (len(group) >= LINES_AT_ONCE or size + length > BYTES_AT_ONCE):
            yield group
            group, size = [], 0
        group.append((number, task))
        size += length
    if group:
        yield group


def task_fields(**given: Any) -> dict[str, Any]:
    """The fields of a task that options gave."""
    retry = body(
        failures_max=given.pop("failures_max"), first_s=given.pop("backoff_first"), max_s=given.pop("backoff_max")
    )
    policy, wait_s = given.pop("on_lost"), given.pop("lost_wait")
    if wait_s is not None and policy != "wait":
        raise wrong_usage("--lost-wait belongs to --on-lost wait.")
    on_lost = None if policy is None else body(policy=policy, wait_s=wait_s)
    return body(retry=retry or None, on_lost=on_lost, **given)
