"""Runs a test with one rule of the product broken: `pytest -p tests.mutations.plugin`; FLEETLOG_MUTATION says which."""

import json
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any


class Mutated(SourceFileLoader):
    """Compiles a module with one passage replaced, always anew."""

    old = new = ""

    def get_code(self, fullname: str) -> CodeType:
        """The code of the changed source."""
        source = self.get_data(self.path).decode()
        if source.count(self.old) != 1:
            raise SystemExit(f"{fullname} has the passage {source.count(self.old)} times, not once:\n{self.old}")
        return self.source_to_code(source.replace(self.old, self.new).encode(), self.path)


class Finder(MetaPathFinder):
    """Finds the module that is to be changed before anybody else does."""

    def __init__(self, module: str, old: str, new: str) -> None:
        self._module, self._old, self._new = module, old, new

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's place, with the changing loader."""
        if fullname != self._module:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.origin is not None:
            loader = Mutated(fullname, spec.origin)
            loader.old, loader.new = self._old, self._new
            spec.loader = loader
        return spec


def _break() -> None:
    mutation: dict[str, Any] = json.loads(os.environ["FLEETLOG_MUTATION"])
    if mutation["module"] in sys.modules:
        raise SystemExit(f"{mutation['module']} was imported already")
    sys.meta_path.insert(0, Finder(mutation["module"], mutation["old"], mutation["new"]))


_break()
