"""Restate: a service with three handlers, served by hypercorn on a socket that the runner holds open."""

import asyncio
import os
import sys

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
HANDLERS = {"nothing": nothing, "note": note, "slow": slow}


async def submit():
    async with restate.create_client(os.environ["PEER_URL"]) as client:

        async def one(kind, number):
            await client.service_send(HANDLERS[kind], float(number))

        async def many(kind, numbers):
            await common.at_once(AT_ONCE, (lambda number=number: one(kind, number) for number in numbers))

        await common.submit_async(many, one)


if __name__ == "__main__" and sys.argv[1] == "submit":
    asyncio.run(submit())
