"""procrastinate on PostgreSQL."""

import asyncio
import os
import sys

import common
from procrastinate import App, PsycopgConnector

BATCH = 1_000
CONCURRENCY = int(os.environ.get("PEER_CONCURRENCY", "10"))

app = App(connector=PsycopgConnector(conninfo=os.environ["PEER_URL"]))


@app.task(name="nothing")
async def nothing(number):
    return None


@app.task(name="note")
async def note(number):
    common.note(number)


@app.task(name="slow")
async def slow(number):
    common.slow_begins()
    await asyncio.sleep(common.SLOW_S)
    common.slow_ends()


if common.PROFILE == "best":

    @app.periodic(cron="*/1 * * * * *")
    @app.task(name="retry_stalled", queueing_lock="retry_stalled", pass_context=True)
    async def retry_stalled(context, timestamp):
        for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=common.SILENCE_S):
            await app.job_manager.retry_job(job)


async def submit():
    async def one(kind, number):
        await app.tasks[kind].defer_async(number=number)

    async def many(kind, numbers):
        if len(numbers) == 1:
            await one(kind, numbers[0])
            return
        for first in range(0, len(numbers), BATCH):
            chosen = numbers[first : first + BATCH]
            await app.tasks[kind].batch_defer_async(*({"number": number} for number in chosen))

    async with app.open_async():
        await common.submit_async(many, one)


async def work():
    best = {"update_heartbeat_interval": 1.0, "stalled_worker_timeout": 60.0} if common.PROFILE == "best" else {}
    concurrency = CONCURRENCY if common.PROFILE == "fast" else 1
    if common.PROFILE == "best":
        concurrency = 2
    async with app.open_async():
        await app.run_worker_async(concurrency=concurrency, **best)


async def schema():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


if __name__ == "__main__":
    asyncio.run({"submit": submit, "work": work, "schema": schema}[sys.argv[1]]())
