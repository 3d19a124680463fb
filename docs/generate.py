"""Writes the reference pages from the code: `python -m docs.generate`, or `make docs`.

The pages are committed; a test compares them with what is generated. The same code gives the same bytes.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parent
PAGES: Final = {
    "formats/events.md": "events:formats_page",
    "formats/inputs.md": "inputs:inputs_page",
    "reference/cli.md": "cli:cli_page",
    "reference/events.md": "events:reference_page",
    "reference/http.md": "http:http_page",
    "reference/metrics.md": "metrics:metrics_page",
    "reference/protocol.md": "protocol:protocol_page",
    "reference/reasons.md": "reasons:reasons_page",
    "reference/settings.md": "settings:settings_page",
}
"""Page -> the function in docs.generators that writes it."""


def generate(name: str) -> str:
    """The text of one page."""
    module, _, function = PAGES[name].partition(":")
    write: Callable[[], str] = getattr(import_module(f"docs.generators.{module}"), function)
    return write()


def main() -> int:
    """Writes every page that is not as it should be, and says which."""
    for name in PAGES:
        path, text = DOCS / name, generate(name)
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            sys.stdout.write(f"wrote docs/{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
