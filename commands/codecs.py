"""How values become bytes and come back, built when first needed: a program that starts uses a few of a hundred."""

from collections.abc import Callable
from typing import Final

from pydantic import ConfigDict, TypeAdapter

WHEN_NEEDED: Final = ConfigDict(defer_build=True)
"""For a TypeAdapter over many classes."""


class Encoders(dict[type, Callable[..., bytes]]):
    """Class -> what writes its values as JSON, with the keywords of pydantic's `to_json`."""

    def __missing__(self, cls: type) -> Callable[..., bytes]:
        made: Callable[..., bytes] = TypeAdapter(cls).serializer.to_json
        self[cls] = made
        return made
