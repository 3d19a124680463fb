"""Temporal: a workflow a task, which runs one activity (a local one where tasks are short)."""

import asyncio
import os
import sys
import uuid
from datetime import timedelta

import common
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

QUEUE = "works"
AT_ONCE = int(os.environ.get("PEER_AT_ONCE", "64"))


@activity.defn
async def nothing(number: float) -> None:
    return None


@activity.defn
async def note(sent: float) -> None:
    common.note(sent)


@activity.defn
async def slow(number: float) -> None:
    common.slow_begins()
    for _ in range(int(common.SLOW_S)):
        await asyncio.sleep(1)
        activity.heartbeat()
    common.slow_ends()


@workflow.defn
class Task:
    """One task: the activity of its kind."""

    @workflow.run
    async def run(self, kind: str, number: float) -> None:
        if kind == "slow":
            best = {"heartbeat_timeout": timedelta(seconds=common.SILENCE_S)} if common.PROFILE == "best" else {}
            await workflow.execute_activity(slow, number, start_to_close_timeout=timedelta(seconds=10), **best)
        else:
            call = {"nothing": nothing, "note": note}[kind]
            await workflow.execute_local_activity(call, number, start_to_close_timeout=timedelta(seconds=10))


async def submit():
    client = await Client.connect(os.environ["PEER_URL"])

    async def one(kind, number):
        await client.start_workflow(Task.run, args=[kind, float(number)], id=str(uuid.uuid4()), task_queue=QUEUE)

    async def many(kind, numbers):
        await common.at_once(AT_ONCE, (lambda number=number: one(kind, number) for number in numbers))

    await common.submit_async(many, one)
    # Its threads may still hold Python's lock while the interpreter ends, which then aborts; all is submitted.
    os._exit(0)


async def work():
    client = await Client.connect(os.environ["PEER_URL"])
    await Worker(
        client,
        task_queue=QUEUE,
        workflows=[Task],
        activities=[nothing, note, slow],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ).run()


if __name__ == "__main__":
    asyncio.run({"submit": submit, "work": work}[sys.argv[1]]())
