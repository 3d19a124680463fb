"""Breaks each rule and shows how its test fails: `python -m tests.mutations [TEXT]`."""

import sys

from tests.mutations.broken import run
from tests.mutations.rules import BROKEN


def main(text: str = "") -> int:
    """The rules whose name holds `text`; 1 where one of them was not caught."""
    missed = 0
    for broken in BROKEN:
        if text in broken.rule:
            outcome = run(broken)
            missed += not outcome.failed
            said = [line for line in outcome.text.splitlines() if line.startswith("E ")]
            print(f"{'caught' if outcome.failed else 'MISSED'}  {broken.rule}\n    {broken.caught_by}")
            print(f"    {said[0] if said else outcome.text}")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
