"""The rules that are broken once, as the files of `rules/` list them: one file for each part of the product."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "rules"


@dataclass(slots=True, frozen=True)
class Broken:
    """A rule, the passage of a module that keeps it, what stands there instead, and the test that notices."""

    rule: str
    module: str
    old: str
    new: str
    caught_by: str


def _rules(path: Path) -> list[Broken]:
    return [Broken(**table) for table in tomllib.loads(path.read_text())["broken"]]


BROKEN: Final = [broken for path in sorted(FOLDER.glob("*.toml")) for broken in _rules(path)]
