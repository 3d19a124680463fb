"""Restate: a service with three handlers, served by hypercorn on a socket that the runner holds open."""

import asyncio
import http.client
import json
import os
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import common
import restate

AT_ONCE = int(os.environ.get("PEER_AT_ONCE", "64"))

works = restate.Service("works")


@works.handler()
async def nothing(ctx: restate.Context, number: float) -> None:
    return None


@works.handler()
async def note(ctx: restate.Context, sent: float) -> None:
    common.note(sent)


@works.handler()
async def slow(ctx: restate.Context, number: float) -> None:
    common.slow_begins()
    await asyncio.sleep(common.SLOW_S)
    common.slow_ends()


app = restate.app(services=[works])

# A plain HTTP request a send, as its documentation has it: several times as fast as the Python client, which was tried.
connections = threading.local()


def one(kind, number):
    if not hasattr(connections, "open"):
        connections.open = http.client.HTTPConnection(os.environ["PEER_URL"].removeprefix("http://"))
        connections.open.connect()
        connections.open.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    headers = {"content-type": "application/json"}
    connections.open.request("POST", f"/works/{kind}/send", json.dumps(number), headers)
    answer = connections.open.getresponse()
    said = answer.read()
    if answer.status >= 300:
        raise SystemExit(f"Restate refused: {answer.status} {said.decode()}")


def many(kind, numbers):
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda number: one(kind, number), numbers))


if __name__ == "__main__" and sys.argv[1] == "submit":
    common.submit(many, one)
