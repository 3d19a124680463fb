"""The options that say what a task is like; several verbs take them."""

from enum import StrEnum
from typing import Annotated

import typer


class Then(StrEnum):
    """What happens when a deadline passes."""

    alarm = "alarm"
    dead = "dead"
    cancel = "cancel"


class OnLost(StrEnum):
    """What follows when a robot falls silent."""

    requeue = "requeue"
    wait = "wait"
    ask = "ask"
    never = "never"


class Part(StrEnum):
    """What a task may be without."""

    requirement = "requirement"
    prefer = "prefer"
    deadlines = "deadlines"
    labels = "labels"


class Pass(StrEnum):
    """Which tasks of a target may pass one that backs off."""

    higher = "higher"
    all = "all"


class Late(StrEnum):
    """What becomes of a late `complete`."""

    accept = "accept"
    record = "record"


Without = Annotated[
    list[Part] | None, typer.Option("--without", help="Take this away from them; may be given several times.")
]
Require = Annotated[
    list[str] | None, typer.Option("--require", metavar="CONDITION", help="What the robot must have: gpu, gpu_mem>=16.")
]
Prefer = Annotated[list[str] | None, typer.Option("--prefer", metavar="CONDITION", help="What it had better have.")]
Priority = Annotated[int | None, typer.Option("--priority", min=0, max=9, help="0 (default) to 9.")]
SlotCost = Annotated[int | None, typer.Option("--slot-cost", min=1, max=1024, help="Slots it takes; default: 1.")]
NotBefore = Annotated[str | None, typer.Option("--not-before", metavar="WHEN", help="An instant, or a span: 2h.")]
Label = Annotated[list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="For filters.")]
StartBy = Annotated[str | None, typer.Option("--start-by", metavar="WHEN", help="Deadline for the start.")]
EndBy = Annotated[str | None, typer.Option("--end-by", metavar="WHEN", help="Deadline for the end.")]
RunWithin = Annotated[
    float | None, typer.Option("--run-within", metavar="SECONDS", min=0.001, help="Limit for one attempt.")
]
ThenOption = Annotated[Then, typer.Option("--then", help="What happens when one of these deadlines passes.")]
Target = Annotated[
    str | None, typer.Option("--target", metavar="NAME", help="What it is done to: one task of it at a time.")
]
LimitKey = Annotated[
    str | None, typer.Option("--limit-key", metavar="NAME", help="What it shares a limit with: `limit set key`.")
]
Payload = Annotated[
    str | None, typer.Option("--payload", metavar="JSON|TEXT|@FILE|-", help="What it is to be done with.")
]
Lease = Annotated[float | None, typer.Option("--lease", metavar="SECONDS", help="At least three windows.")]
Accept = Annotated[float | None, typer.Option("--accept", metavar="SECONDS", help="Time to accept.")]
FailuresMax = Annotated[int | None, typer.Option("--failures-max", min=1, max=100, help="Then it is dead.")]
LostMax = Annotated[
    int | None, typer.Option("--lost-max", min=1, max=100, help="Robots it may lose before it is dead.")
]
OnLostOption = Annotated[OnLost | None, typer.Option("--on-lost", help="When its robot falls silent.")]
LostWait = Annotated[float | None, typer.Option("--lost-wait", metavar="SECONDS", min=0, help="With --on-lost wait.")]
PassOption = Annotated[Pass | None, typer.Option("--pass", help="Who may pass it on its target in back-off.")]
LateOption = Annotated[Late | None, typer.Option("--late", help="What becomes of a late result.")]
