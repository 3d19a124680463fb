"""The version of the software, as it is installed."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final


def _installed() -> str:
    try:
        return version("fleetlog")
    except PackageNotFoundError:
        return "unknown"


VERSION: Final = _installed()
