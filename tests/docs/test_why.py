"""why.md names every word with which a task's owner answers, and no other."""

import ast
import re
from collections.abc import Iterator

from tests.docs.blocks import PROJECT

SCOPES = ("pool", "kind", "target", "task")


def words_in_code() -> Iterator[str]:
    """What `reason(...)` is called with."""
    for name in ("waiting", "explain"):
        tree = ast.parse((PROJECT / f"commands/decide/{name}.py").read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "reason":
                word = node.args[0]
                if isinstance(word, ast.Constant):
                    yield str(word.value)
                else:
                    assert ast.unparse(word) == "f'{scope}_paused'"
                    yield from (f"{scope}_paused" for scope in SCOPES)


def test_every_word_is_on_the_page() -> None:
    """In the first column of its tables."""
    page = (PROJECT / "docs/understand/why.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert {word for row in rows for word in re.findall(r"`(\w+)`", row)} == set(words_in_code())
