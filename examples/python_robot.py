"""A robot in Python: one kind in threads, one in processes that can be killed, with progress and both kinds of failure.

    python examples/python_robot.py py-1 &
    fleetlog submit compress --payload '{"path": "/etc/services"}' --wait
    fleetlog submit fetch --payload '{"url": "http://127.0.0.1:8780/healthz"}' --wait

Ctrl-C lets running tasks end (30 s), a second one does not.
"""

import hashlib
import os
import sys
import urllib.error
import urllib.request
import zlib

from fleetlog import Fatal, Retry, Robot, TaskContext

robot = Robot(
    sys.argv[1] if len(sys.argv) > 1 else "py-1",
    gateway=os.environ.get("FLEETLOG_GATEWAY", "http://127.0.0.1:8780"),
    pool=os.environ.get("FLEETLOG_POOL", "default"),
    slots=4,
)


@robot.task("compress", run_in="process", fatal=(FileNotFoundError, PermissionError))
def compress(ctx: TaskContext, payload: dict[str, str]) -> dict[str, object]:
    """Heavy work belongs into a process: it disturbs nobody, and it is killed when the lease is over."""
    compressor, digest, before, after = zlib.compressobj(9), hashlib.sha256(), 0, 0
    size = max(1, os.path.getsize(payload["path"]))
    with open(payload["path"], "rb") as file:
        while chunk := file.read(65536):
            digest.update(chunk)
            before += len(chunk)
            after += len(compressor.compress(chunk))
            ctx.progress(min(100, 100 * before // size), "compressing")
    after += len(compressor.flush())
    return {"sha256": digest.hexdigest(), "bytes": before, "compressed": after}


@robot.task("fetch")
def fetch(ctx: TaskContext, payload: dict[str, str]) -> dict[str, object]:
    """Waiting for others belongs into a thread. What cannot succeed is fatal, what may is tried again."""
    if not payload.get("url", "").startswith("http"):
        raise Fatal("payload.url must be an http address")
    try:
        with urllib.request.urlopen(payload["url"], timeout=10) as answer:
            return {"status": answer.status, "bytes": len(answer.read())}
    except urllib.error.HTTPError as refused:
        raise Fatal(f"HTTP {refused.code}") from refused
    except urllib.error.URLError as away:
        raise Retry(f"no answer: {away.reason}", after_s=1) from away


if __name__ == "__main__":
    robot.run(grace_s=30)
