"""deploy/alerts.yml: each rule reads as Prometheus wants it, and names figures and a runbook that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import pytest
import yaml

from docs.generators.metrics import metrics_page
from robot_gateway.alarms import NAMES
from tests.docs.blocks import PROJECT

ALERTS: Final = PROJECT / "deploy" / "alerts.yml"
RUNBOOKS: Final = PROJECT / "docs" / "operate" / "alarms.md"
ROW: Final = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", re.MULTILINE)
SUFFIXES: Final = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("_count", "_sum")}
FUNCTIONS: Final = {"absent", "increase", "rate", "histogram_quantile", "sum"}
WORDS: Final = {"by", "and", "or", "unless"}
TOKEN: Final = re.compile(
    r"""\s+ | "[^"]*" | [A-Za-z_][A-Za-z0-9_]* | \[\d+[smhd]\] | \d+(\.\d+)? | [=!]~ | [=!<>]=? | [-+*/(){},]""",
    re.VERBOSE,
)
DURATION: Final = re.compile(r"\d+[smhd]")


def rules() -> list[dict[str, Any]]:
    """Every rule of the file."""
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def figures() -> dict[str, set[str]]:
    """Every series that /metrics shows, and its labels."""
    found: dict[str, set[str]] = {}
    for name, kind, labels in ROW.findall(metrics_page()):
        own = set(re.findall(r"`(\w+)`", labels)) | ({"le"} if kind == "histogram" else set())
        found |= {name + suffix: own for suffix in SUFFIXES.get(kind, ("",))}
    return found


def problems_of(expr: str, known: dict[str, set[str]]) -> Iterator[str]:
    """What is wrong with an expression, as far as its tokens tell."""
    tokens, at = [], 0
    while at < len(expr):
        found = TOKEN.match(expr, at)
        if found is None:
            yield f"{expr[at:]!r} is no PromQL"
            return
        tokens += [found[0]] if found[0].strip() else []
        at = found.end()
    for opening, closing in ("()", "{}"):
        if tokens.count(opening) != tokens.count(closing):
            yield f"{opening} and {closing} do not match"
    named = [token for token in tokens if token.startswith("fleetlog_")]
    if not named:
        yield "it names no figure"
    yield from (f"{name} is no figure" for name in named if name not in known)
    labels = set.union(*(known.get(name, set()) for name in named)) if named else set()
    others = {t for t in tokens if re.match(r"[A-Za-z_]", t) and t not in named} - FUNCTIONS - WORDS
    yield from (f"{name} is no label of {named}" for name in sorted(others - labels))
    for before, token in pairwise(tokens):
        if token.startswith("[") and before not in named and before != "}":
            yield f"{token} stands after {before}"


def test_there_are_rules_and_their_names_are_unique() -> None:
    """One name, one rule."""
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) >= 20


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_a_rule_reads_as_prometheus_wants_it(rule: dict[str, Any]) -> None:
    """Its fields, its expression, its time, and that every figure and label in it is one that /metrics shows."""
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Fleetlog[A-Z][A-Za-z]+", rule["alert"])
    assert list(problems_of(rule["expr"], figures())) == []
    assert re.search(r"[<>=]|^absent\(", rule["expr"])
    assert DURATION.fullmatch(rule.get("for", "1m"))
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"].keys() == {"summary", "runbook"}
    shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert shown <= ({"pool"} if "pool" in rule["expr"] or rule["expr"].startswith("fleetlog_") else set())


def test_each_rule_has_its_runbook_and_each_runbook_its_rule() -> None:
    """The section is there, names the alert, and none is left over."""
    head, *sections = re.split(r"^### ", RUNBOOKS.read_text().partition("## Runbooks")[2], flags=re.MULTILINE)
    assert head.strip() == ""
    texts = {section.partition("\n")[0].strip(): section for section in sections}
    named = {rule["annotations"]["runbook"]: rule["alert"] for rule in rules()}
    assert set(named) == {f"docs/operate/alarms.md#{anchor}" for anchor in texts}
    for runbook, alert in named.items():
        assert f"*{alert}" in texts[runbook.partition("#")[2]]


def test_each_alarm_of_the_command_has_its_runbook() -> None:
    """The same names, the same page."""
    text = RUNBOOKS.read_text()
    assert [name for name in NAMES if f"### {name}\n" not in text or f"alarm `{name}`" not in text] == []


@pytest.mark.parametrize(
    ("expr", "said"),
    [
        ("fleetlog_tasks{state='LOST'} > 0", "is no PromQL"),
        ("sum(fleetlog_tasks > 0", "( and ) do not match"),
        ("fleetlog_taks > 0", "fleetlog_taks is no figure"),
        ('fleetlog_tasks{robot="r1"} > 0', "robot is no label"),
        ("rate(5[5m]) > 0", "it names no figure"),
        ("avg(fleetlog_tasks) > 0", "avg is no label"),
        ("rate(fleetlog_dead_letters[5m]) > 0", "fleetlog_dead_letters is no figure"),
        ("fleetlog_tasks > [5m]", "[5m] stands after >"),
    ],
)
def test_a_wrong_expression_is_found(expr: str, said: str) -> None:
    """The check can fail."""
    assert any(said in problem for problem in problems_of(expr, figures()))
