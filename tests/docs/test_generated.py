"""The reference pages are what the code says now."""

import pytest

from docs.generate import DOCS, PAGES, generate


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_generated_page_is_current(name: str) -> None:
    """If this fails, the code has changed: run `make docs` and commit what it writes."""
    assert (DOCS / name).read_text() == generate(name)


def test_every_page_of_the_reference_is_generated() -> None:
    """Nobody writes there by hand, where `make docs` would not keep it true."""
    found = {f"reference/{path.name}" for path in (DOCS / "reference").iterdir()}
    assert found == {name for name in PAGES if name.startswith("reference/")}
