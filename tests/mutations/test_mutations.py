"""Each rule of the product is broken once, and the test that guards it fails: without that nobody would see it go.

`python -m tests.mutations` does the same for all rules, or for those whose name holds a text, and shows how each fails.
"""

import pytest

from tests.mutations.broken import run
from tests.mutations.rules import BROKEN, Broken


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.rule)
def test_a_broken_rule_is_caught(broken: Broken) -> None:
    """The test passes with the rule (as every run of all tests shows) and fails without it."""
    outcome = run(broken)
    assert outcome.failed, f"with {broken.module} broken, {broken.caught_by} ends so:\n{outcome.text}"


def test_each_rule_is_named_once() -> None:
    """A rule has one way in which it is broken here."""
    rules = [broken.rule for broken in BROKEN]
    assert sorted(set(rules)) == sorted(rules)
