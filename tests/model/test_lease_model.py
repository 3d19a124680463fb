"""The model of the lease protocol holds in small fleets, and each rule is needed: without it a property breaks."""

import re

import pytest

from tests.model.checks import FLEETS, REMOVED, Fleet, Removed
from tests.support.spin import MODEL, check


@pytest.mark.parametrize("fleet", FLEETS, ids=lambda fleet: fleet.name)
def test_the_protocol_holds(fleet: Fleet) -> None:
    """Every order of steps of this fleet, and no property breaks."""
    found = check(fleet.switches, fleet.search, optimise=True)
    assert found.broken is None, "\n".join(found.story)
    assert found.states >= fleet.states


@pytest.mark.parametrize("removed", REMOVED, ids=lambda removed: removed.rule)
def test_each_rule_is_needed(removed: Removed) -> None:
    """Without the rule the search finds a story in which the property breaks."""
    found = check({**removed.where, removed.rule: removed.value}, removed.search)
    assert found.broken == removed.breaks
    assert found.story


def test_every_switch_of_the_model_is_removed_once() -> None:
    """No rule of the model is left out above."""
    rules = MODEL.read_text().partition("/* ---- sizes ---- */")[0]
    assert sorted(re.findall(r"^#ifndef (\w+)", rules, re.M)) == sorted(removed.rule for removed in REMOVED)
