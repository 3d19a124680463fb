"""From the words of `fleetlog submit` to tasks: payloads, labels, deadlines, retry."""

import json
import sys
from pathlib import Path
from typing import Any

from fleetlog.choosing import body
from fleetlog.problems import wrong_usage
from fleetlog.when import instant


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
