"""Fleetlog: a robot, and a submitter over one connection."""

import asyncio
import os
import sys

import common

from fleetlog import Robot, Submitter

SLOTS = 256


def submit():
    with Submitter(os.environ["PEER_URL"]) as submitter:

        def one(kind, number):
            submitter.submit(kind, {"number": number})

        def many(kind, numbers):
            for number in numbers:
                one(kind, number)
            submitter.flush()

        common.submit(many, one)


def work(name):
    robot = Robot(name, gateway=os.environ["PEER_URL"], slots=SLOTS if common.PROFILE == "fast" else 1)

    @robot.task("nothing", run_in="async")
    async def nothing(context, payload):
        return None

    @robot.task("note", run_in="async")
    async def note(context, payload):
        common.note(payload["number"])

    @robot.task("slow", run_in="async")
    async def slow(context, payload):
        common.slow_begins()
        await asyncio.sleep(common.SLOW_S)
        common.slow_ends()

    robot.run(grace_s=1)


if __name__ == "__main__":
    if sys.argv[1] == "submit":
        submit()
    else:
        work(sys.argv[2])
