"""A Python robot of the demonstration: `python -m fleetlog.demo.robot ID URL POOL`.

It compresses a file, decompresses what came of it, and reports sizes and SHA-256 of what it got back. The largest
files come in parts: after each one there is a checkpoint, so that whoever takes over goes on where another stopped.
"""

import gzip
import logging
import sys
from hashlib import sha256
from typing import Any, Final

from fleetlog.demo.files import BY_PARTS, KIND, path_in
from robot_gateway.sdk.context import TaskContext
from robot_gateway.sdk.errors import Fatal
from robot_gateway.sdk.robot import Robot

LEVEL: Final = 9
SLOTS: Final = 4


def compress(ctx: TaskContext, payload: Any) -> dict[str, Any]:
    """The result for one file: `sha256`, `bytes`, `compressed` (bytes), and how many parts were done here."""
    try:
        content = path_in(payload).read_bytes()
    except OSError as error:
        raise Fatal(f"{path_in(payload)} cannot be read: {error.strerror}") from None
    parts = payload["parts"] if isinstance(payload, dict) else 1
    if parts == 1:
        return _result(content, _checked(content), 1)
    return _in_parts(ctx, content, parts)


def _in_parts(ctx: TaskContext, content: bytes, parts: int) -> dict[str, Any]:
    """Each part is a member of one gzip file, so parts can be made by different robots."""
    saved = ctx.last_checkpoint or {"done": 0, "compressed": 0}
    done, compressed = saved["done"], saved["compressed"]
    begun_at = done
    size = -(-len(content) // parts)
    while done < parts:
        ctx.progress(100 * done // parts, f"part {done + 1} of {parts}")
        compressed += _checked(content[done * size : (done + 1) * size])
        done += 1
        if done < parts:
            ctx.checkpoint({"done": done, "compressed": compressed})
    return _result(content, compressed, parts - begun_at)


def _checked(content: bytes) -> int:
    """Compresses, decompresses, compares; the bytes that it took."""
    packed = gzip.compress(content, LEVEL, mtime=0)
    if gzip.decompress(packed) != content:
        raise Fatal("what was compressed did not come back")
    return len(packed)


def _result(content: bytes, compressed: int, parts_here: int) -> dict[str, Any]:
    return {
        "sha256": sha256(content).hexdigest(),
        "bytes": len(content),
        "compressed": compressed,
        "parts_here": parts_here,
    }


def main() -> None:
    """Serves until it is told to end."""
    name, url, pool = sys.argv[1:4]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    robot = Robot(name, pool=pool, gateway=url, capabilities=["python", BY_PARTS], slots=SLOTS)
    robot.task(KIND)(compress)
    robot.run(grace_s=5)


if __name__ == "__main__":
    main()
