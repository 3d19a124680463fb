"""Bulk work: one verb on all tasks that a dry run found, as one command for each task, to its owner.

The gateway decides nothing: a task that meanwhile left the fitting states is refused by its owner, and counted. A
command's id follows from the token and the task, so that what is sent again after a crash is answered from the owner's
memory and acts once. One batch of at most BATCH commands is on its way at a time, whatever work there is; several
works take turns by the batch, and a batch takes at least BATCH_EVERY_S.
"""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TextIO

from commands.ids import name_id
from commands.inputs import CommandBase
from commands.reasons import Refusal
from projections.filters import Filter
from robot_gateway.bulk_folder import REFUSALS_SHOWN, BulkFolder, Selection, Tally, Writing
from robot_gateway.bulk_verbs import BULK_VERBS, selecting_filter
from robot_gateway.event_views import now_ms
from robot_gateway.models import BulkIn
from robot_gateway.pending import Answer
from robot_gateway.problems import RefusedRequest, refuse
from robot_gateway.tokens import Principal
from robot_gateway.wire import instant_text

if TYPE_CHECKING:
    from robot_gateway.gateway import Gateway

logger = logging.getLogger("fleetlog.gateway")

BATCH: Final = 500
BATCH_EVERY_S: Final = 0.25
AGAIN_S: Final = 1.0
EXAMPLES: Final = 10
SELECTED_MAX: Final = 1_000_000
WORKS_MAX: Final = 16
EXAMPLE_FIELDS: Final = ("id", "pool", "kind", "state", "priority", "target", "robot")

Resource = dict[str, Any]


@dataclass(slots=True, eq=False)
class Work:
    """One bulk work of this process: what was asked of which selection, by whom, and how far it is."""

    selection: Selection
    asked: BulkIn
    principal: Principal
    lock: TextIO
    tally: Tally = field(default_factory=Tally)
    stop: str | None = None
    """Why it ends before all is done."""
    problem: str | None = None
    """What it waits for now, as a sentence."""


class Bulk:
    """The bulk works of one gateway. Used by the gateway's loop; files are read and written in threads."""

    def __init__(self, gateway: "Gateway", folder: BulkFolder) -> None:
        self._gateway = gateway
        self._folder = folder
        self._works: dict[str, Work] = {}
        self._turns: deque[Work] = deque()
        self._news = asyncio.Event()
        self._looking = asyncio.Lock()
        self._runner: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Goes on with what was accepted and is not over."""
        self._runner = asyncio.get_running_loop().create_task(self._run())
        try:
            for selection in await asyncio.to_thread(self._folder.unfinished):
                await self._adopt(selection)
        except OSError as error:
            logger.warning("bulk work of before cannot be read (%s): look at the folder and its owner", error)

    async def stop(self) -> None:
        """Ends after the answers that are on their way; the next life goes on."""
        if self._runner is not None:
            self._runner.cancel()
            with suppress(asyncio.CancelledError):
                await self._runner
        for work in self._works.values():
            work.lock.close()
        self._works.clear()

    # ---- a dry run ----

    async def select(self, asked: BulkIn, principal: Principal) -> Resource:
        """The answer to a dry run; one at a time looks through the tables. Raises RefusedRequest."""
        only_own = None if principal.may("verb") else principal.name
        filtered = selecting_filter(asked, only_own)
        if isinstance(filtered, Refusal):
            raise RefusedRequest(filtered)
        with self._folder_usable():
            async with self._looking:
                await asyncio.to_thread(self._folder.forget_old, now_ms())
                writing = await asyncio.to_thread(self._folder.writing)
                try:
                    found = await self._write_found(writing, asked, principal, filtered)
                    selection = await asyncio.to_thread(writing.finish, found)
                except BaseException:
                    writing.drop()
                    raise
        return selected_resource(selection)

    async def _write_found(
        self, writing: Writing, asked: BulkIn, principal: Principal, filtered: Filter
    ) -> dict[str, Any]:
        """Writes down what matches, page by page; what is to be kept of the dry run beside it."""
        fits, count, states, examples = BULK_VERBS[asked.verb].fits, 0, Counter[str](), list[Any]()
        cursor, position = None, None
        while True:
            page = await self._gateway.reads.selecting(principal, filtered, cursor)
            cards = [card for card in page.items if card["state"] in fits]
            await asyncio.to_thread(writing.add, [(card["pool"], card["id"]) for card in cards])
            count += len(cards)
            states.update(card["state"] for card in cards)
            examples += [_example(card) for card in cards[: EXAMPLES - len(examples)]]
            position, cursor = position or str(page.position), page.next
            if count > SELECTED_MAX:
                raise refuse("bad_filter", f"more than {SELECTED_MAX} tasks match: narrow the filter", "/filter")
            if cursor is None:
                break
        return {
            "verb": asked.verb, "pool": asked.pool, "filter": asked.filter or "", "count": count,
            "states": dict(sorted(states.items())), "examples": examples, "at": now_ms(), "position": position,
            "actor": principal.name, "log_id": self._gateway.log.log_id,
        }  # fmt: skip

    @contextmanager
    def _folder_usable(self) -> Iterator[None]:
        """A disk that is full or somebody else's is said, with the folder."""
        try:
            yield
        except OSError as error:
            text = f"{self._folder.path} cannot be written ({(error.strerror or '').lower()}): look at disk and owner"
            raise RefusedRequest(Refusal("not_ready", text, retry_after_ms=5_000)) from None

    # ---- the act ----

    async def act(self, asked: BulkIn, principal: Principal) -> Resource:
        """Accepts the work, or finds it accepted before; it is done whatever ends meanwhile. Raises RefusedRequest."""
        selection = await asyncio.to_thread(self._folder.selection, asked.token or "")
        problem = self._token_problem(selection, asked, principal)
        if problem is not None or selection is None:
            raise RefusedRequest(problem or Refusal("token_stale", "no such selection"))
        if selection.asked is None:
            if len(self._turns) >= WORKS_MAX:
                text = f"{WORKS_MAX} bulk works are going on here"
                raise RefusedRequest(Refusal("gateway_busy", text, retry_after_ms=5_000))
            await asyncio.to_thread(
                selection.ask, {"asked": _said(asked), "principal": _saved(principal), "at": now_ms()}
            )
        return await self.resource(selection)

    def _token_problem(self, selection: Selection | None, asked: BulkIn, principal: Principal) -> Refusal | None:
        """Why this request may not act on what the token stands for, or None."""
        if selection is None or selection.found["log_id"] != self._gateway.log.log_id:
            return Refusal("token_stale", "this gateway has no selection under this token", "/token")
        found = selection.found
        if found["actor"] != principal.name:
            return Refusal("forbidden", "the dry run with this token was made by somebody else", "/token")
        for name in ("verb", "pool", "filter"):
            said = getattr(asked, name)
            if said is not None and said != found[name]:
                text = f"the dry run with this token had {name} {found[name]!r}, not {said!r}"
                return Refusal("token_stale", text, f"/{name}")
        if selection.asked is not None:
            if _act_of(selection.asked["asked"]) == _act_of(_said(asked)):
                return None
            return Refusal("token_stale", "this token was used already, with another reason or other fields", "/token")
        if now_ms() > selection.expires_at:
            return Refusal("token_stale", "this token is older than an hour", "/token")
        return None

    async def look(self, token: str, principal: Principal) -> Resource:
        """How far a work is. Raises RefusedRequest: no_such_bulk."""
        return await self.resource(await self._of(token, principal))

    async def end(self, token: str, principal: Principal) -> Resource:
        """No further batch is sent; what is on its way is decided. Raises RefusedRequest: no_such_bulk."""
        selection = await self._of(token, principal)
        await self.resource(selection)
        work = self._works.get(selection.token)
        if work is not None:
            work.stop = f"ended by {principal.name}"
            while selection.token in self._works and not self._gateway.stopping:
                await asyncio.sleep(0.01)
        return await self.resource(selection)

    async def _of(self, token: str, principal: Principal) -> Selection:
        selection = await asyncio.to_thread(self._folder.selection, token)
        if selection is None or selection.asked is None:
            raise refuse("no_such_bulk", f"this gateway knows no bulk work {token[:64]!r}")
        if not _may_look(principal, selection.found):
            raise refuse("no_such_bulk", f"the bulk work {token} is somebody else's")
        return selection

    async def resource(self, selection: Selection) -> Resource:
        """A work as it stands. One that nobody does now, because its gateway has ended, is taken on."""
        await self._adopt(selection)
        work = self._works.get(selection.token)
        if work is not None:
            return work_resource(selection, work.tally, work.problem)
        return work_resource(selection, await asyncio.to_thread(selection.tally), None)

    async def _adopt(self, selection: Selection) -> None:
        """Does the work here from now on, unless it is over or another process of this host does it."""
        if selection.asked is None or selection.token in self._works or self._gateway.stopping:
            return
        if selection.found["log_id"] != self._gateway.log.log_id:
            return
        lock = await asyncio.to_thread(selection.hold)
        if lock is None:
            return
        await asyncio.to_thread(selection.mend)
        tally = await asyncio.to_thread(selection.tally)
        if tally.over is not None or selection.token in self._works:
            lock.close()
            return
        asked = BulkIn.model_validate(selection.asked["asked"])
        work = Work(selection, asked, _restored(selection.asked["principal"]), lock, tally)
        self._works[selection.token] = work
        self._turns.append(work)
        self._news.set()

    # ---- doing it ----

    async def _run(self) -> None:
        """One batch after another, the works in turn."""
        while True:
            while not self._turns:
                self._news.clear()
                await self._news.wait()
            work, began = self._turns.popleft(), time.monotonic()
            try:
                over = await self._one_batch(work)
            except (OSError, ValueError) as error:
                logger.exception("the bulk work %s stops", work.selection.token)
                over = self._forget(work, f"its files cannot be used ({error}): look at the folder and its owner")
            if not over:
                self._turns.append(work)
            await asyncio.sleep(max(0.0, BATCH_EVERY_S - (time.monotonic() - began)))

    async def _one_batch(self, work: Work) -> bool:
        """The next batch of one work; whether it is over with that.

        1. Read the next tasks behind what `done` says.
        2. Send a command for each, and again what may succeed later, until all have their answer.
        3. Append what came of them to `done`.

        A crash before 3: the same commands are sent again under the same ids, and answered as they were.
        """
        if not self._gateway.access.still_valid(work.principal):
            work.stop = f"the token {work.principal.name} was withdrawn or changed"
        tasks = [] if work.stop else await asyncio.to_thread(_next_tasks, work)
        if tasks:
            answers = await self._answers(work, [self._command(work, pool, task) for pool, task in tasks])
            said = BULK_VERBS[work.asked.verb].said
            line = batch_line(work.tally.done, tasks, answers, said)
            await asyncio.to_thread(work.selection.note, line)
            work.tally.add(line)
        if work.tally.done < work.selection.found["count"] and not work.stop:
            return False
        end = {"at": now_ms(), "over": "stopped" if work.stop else "done"}
        end |= {"why": work.stop} if work.stop else {}
        await asyncio.to_thread(work.selection.note, end)
        return self._forget(work, None)

    def _forget(self, work: Work, problem: str | None) -> bool:
        work.problem = problem
        work.lock.close()
        self._works.pop(work.selection.token, None)
        return True

    def _command(self, work: Work, pool: str, task: str) -> CommandBase:
        shape, body = BULK_VERBS[work.asked.verb].command(task, work.asked)
        command_id = name_id("bulk", work.selection.token, pool, task)
        return shape(  # type: ignore[no-any-return]
            id=command_id, pool=pool, actor=work.principal.name, reply_to=self._gateway.name, body=body
        )

    async def _answers(self, work: Work, commands: Sequence[CommandBase]) -> list[Answer | None]:
        """What came of each; None for those that had no answer when the work was stopped."""
        answers: list[Answer | None] = [None] * len(commands)
        while left := [n for n, answer in enumerate(answers) if answer is None]:
            for n, answer in zip(left, await self._gateway.ask_all([commands[n] for n in left]), strict=True):
                answers[n] = None if answer.refusal is not None and answer.refusal.retryable else answer
                if answers[n] is None and answer.refusal is not None:
                    work.problem = answer.refusal.text
            if None not in answers or work.stop:
                break
            await asyncio.sleep(AGAIN_S)
        work.problem = None
        return answers


def _next_tasks(work: Work) -> list[tuple[str, str]]:
    with work.selection.tasks_from(work.tally.done) as tasks:
        return list(islice(tasks, BATCH))


def batch_line(first: int, tasks: Sequence[tuple[str, str]], answers: Sequence[Answer | None], said: str) -> Resource:
    """What came of a batch, as it is noted. `said` stands for an accepted answer that names no state."""
    outcomes, refused, refusals = Counter[str](), Counter[str](), list[Resource]()
    position = None
    for (pool, task), answer in zip(tasks, answers, strict=True):
        if answer is None:
            refused["no_answer"] += 1
        elif answer.refusal is not None:
            refused[answer.refusal.reason] += 1
            about = {"pool": pool, "task": task, "reason": answer.refusal.reason, "detail": answer.refusal.text}
            refusals += [about] if len(refusals) < REFUSALS_SHOWN else []
        else:
            accepted = answer.accepted or {}
            outcomes["unchanged" if accepted.get("changed") is False else str(accepted.get("state", said))] += 1
            position = answer.position or position
    line: Resource = {"at": now_ms(), "to": first + len(tasks), "outcomes": outcomes, "refused": refused}
    return line | {"refusals": refusals, "position": position}


def _may_look(principal: Principal, found: Resource) -> bool:
    """Who asked for it, and operators of all pools that it may touch."""
    pool = found["pool"]
    in_reach = principal.everywhere if pool is None else principal.covers_pool(pool)
    return bool(found["actor"] == principal.name) or (principal.may("verb") and in_reach)


# ---- shapes ----


def _example(card: Any) -> Resource:
    return {name: card[name] for name in EXAMPLE_FIELDS if name in card}


def _said(asked: BulkIn) -> Resource:
    """The request as it was sent, to be kept in a file."""
    return asked.model_dump(mode="json", exclude_unset=True, by_alias=True)


def _act_of(said: Resource) -> Resource:
    """What decides whether two requests ask the same: reason and the verb's own fields."""
    return {name: value for name, value in said.items() if name not in ("token", "pool", "filter", "dry_run")}


def _saved(principal: Principal) -> Resource:
    return {
        "name": principal.name,
        "role": principal.role,
        "pools": list(principal.pools),
        "robots": list(principal.robots),
        "digest": principal.digest,
    }


def _restored(saved: Resource) -> Principal:
    return Principal(saved["name"], saved["role"], tuple(saved["pools"]), tuple(saved["robots"]), saved["digest"], None)


def selected_resource(selection: Selection) -> Resource:
    """The answer to a dry run."""
    found = selection.found
    shown = {name: found[name] for name in ("verb", "pool", "filter", "count", "states", "examples", "position")}
    return {"token": selection.token, **shown, "dry_run": True, "expires_at": instant_text(selection.expires_at)}


def work_resource(selection: Selection, tally: Tally, problem: str | None) -> Resource:
    """A work as it stands. `state`: going_on, done or stopped."""
    found, asked = selection.found, selection.asked or {}
    shown: Resource = {
        "id": selection.token,
        "verb": found["verb"],
        "pool": found["pool"],
        "filter": found["filter"],
        "reason": asked["asked"].get("reason"),
        "actor": found["actor"],
        "asked_at": instant_text(asked["at"]),
        "state": tally.over or "going_on",
        "count": found["count"],
        "done": tally.done,
        "outcomes": dict(sorted(tally.outcomes.items())),
        "refused": dict(sorted(tally.refused.items())),
        "refusals": tally.refusals,
        "position": tally.position,
    }
    if tally.over_at is not None:
        shown["over_at"] = instant_text(tally.over_at)
    if tally.why is not None or problem is not None:
        shown["why"] = tally.why or problem
    return shown
