"""`fleetlog conformance`: choosing rows, playing them, and saying what came of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from typing import Any, Final, TypeVar

from fleetlog.output import Output
from fleetlog.problems import NO_ANSWER, REFUSED, WRONG_USAGE, Problem, wrong_usage
from robot_gateway.conformance.checking import CannotStart, NotReady, Unreachable
from robot_gateway.conformance.gateway_rows import rows_over
from robot_gateway.conformance.playing import Result, play_gateway, play_robot
from robot_gateway.conformance.robot_rows import ROBOT_ROWS
from robot_gateway.conformance.row import Row
from robot_gateway.conformance.scene import TRANSPORTS, GatewayUnderTest, Scene

Stage = TypeVar("Stage")
STYLES: Final = {True: "green", False: "bold red"}


def conform_robot(
    out: Output, command: Sequence[str], only: Sequence[str], *, list_rows: bool, at_once: int, patience_s: float
) -> None:
    """Plays the rows for robots against a command. Raises Problem where one fails or none can be played."""
    rows = _chosen(ROBOT_ROWS, only)
    if list_rows:
        _list(out, ((None, row) for row in rows))
        return
    if not command:
        raise wrong_usage(
            "which robot? Give the command that starts it after `--`, for example: "
            "fleetlog conformance robot -- ./my-robot {gateway} {pool} {robot}."
        )
    _say(out, len(rows), play_robot(command, rows, at_once, patience_s))


def conform_gateway(
    out: Output,
    gateway: GatewayUnderTest,
    only: Sequence[str],
    *,
    transport: str | None,
    list_rows: bool,
    at_once: int,
) -> None:
    """Plays the rows for gateways. Raises Problem where one fails or none can be played."""
    over = [transport] if transport else list(TRANSPORTS)
    every = [(name, row) for name in over for row in rows_over(name)]
    known = _chosen(list({row.name: row for _, row in every}.values()), only)
    rows: list[tuple[str, Row[Scene]]] = [(name, row) for name, row in every if row in known]
    if list_rows:
        _list(out, rows)
        return
    if not gateway.url.startswith(("http://", "https://")):
        raise wrong_usage(f"{gateway.url!r} is no address of a gateway: write http://HOST:PORT.")
    try:
        gateway.prepare()
    except NotReady as problem:
        raise _problem(problem) from None
    _say(out, len(rows), play_gateway(gateway, rows, at_once))


def _chosen(rows: Iterable[Row[Stage]], only: Sequence[str]) -> list[Row[Stage]]:
    """The rows whose names were asked for, all if none was. Raises Problem for a name that fits none."""
    every = list(rows)
    for name in only:
        if not any(fnmatchcase(row.name, name) for row in every):
            raise wrong_usage(f"no row is called {name!r}: see them with --list; a name may have *, as in 'hello/*'.")
    return [row for row in every if not only or any(fnmatchcase(row.name, name) for name in only)]


def _list(out: Output, rows: Iterable[tuple[str | None, Row[Any]]]) -> None:
    """Each row once, with its rule."""
    by_name: dict[str, dict[str, Any]] = {}
    for transport, row in rows:
        item = by_name.setdefault(row.name, {"row": row.name, "rule": row.rule})
        if transport is not None:
            item.setdefault("transports", []).append(transport)
    columns = (
        ("row", "transports", "rule") if any("transports" in item for item in by_name.values()) else ("row", "rule")
    )
    out.rows(by_name.values(), columns)


def _say(out: Output, total: int, results: Iterator[Result]) -> None:
    """A line for each row, a bar meanwhile, a summary. Raises Problem where a row failed."""
    failed, seconds = 0, 0.0
    with closing(results), out.progress("rows", total) as advance:  # type: ignore[type-var]
        try:
            for result in results:
                failed += not result.passed
                seconds += result.seconds
                _line(out, result)
                advance(1)
        except NotReady as problem:
            raise _problem(problem) from None
    if out.as_json:
        out.json({"rows": total, "passed": total - failed, "failed": failed, "seconds": round(seconds, 1)})
    if failed:
        raise Problem(f"{failed} of {total} rows failed; what was expected and what came stands above.")
    out.note(f"all {total} rows passed.")


def _problem(problem: NotReady) -> Problem:
    """Why nothing was played, with its exit code."""
    codes = {CannotStart: WRONG_USAGE, Unreachable: NO_ANSWER}
    return Problem(str(problem), codes.get(type(problem), REFUSED))


def _line(out: Output, result: Result) -> None:
    if out.as_json:
        told: dict[str, Any] = {"row": result.row}
        if result.transport is not None:
            told["transport"] = result.transport
        told |= {"passed": result.passed, "rule": result.rule, "problem": result.problem}
        out.json(told | {"seconds": round(result.seconds, 2)})
        return
    if result.passed and out.quiet:
        return
    word = "pass" if result.passed else "FAIL"
    name = result.row if result.transport is None else f"{result.row} ({result.transport})"
    text = result.rule if result.problem is None else f"{result.rule} -- {result.problem}"
    if out.terminal:
        from rich.markup import escape

        style = STYLES[result.passed]
        out.console().print(f"[{style}]{word}[/{style}] [bold]{escape(name)}[/bold] {escape(text)}")
    else:
        out.text(f"{word}\t{name}\t{text}")
