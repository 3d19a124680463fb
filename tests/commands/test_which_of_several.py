"""Where an attempt that ends could lead to several states: the order of precedence, row by row."""

import pytest

from tests.support.play import play

RUNNING = """
    t+0   submit   t1 {options}
    t+0   robot    r1
    t+0   accept   r1 t1           -> LeaseStarted t1 #1
"""

ROWS = {
    "completion comes before a requested cancel": ("", """
        t+1   cancel   t1              -> CancelRequested t1
        t+2   complete r1 t1           -> TaskCompleted t1 cancel_requested=True
    """),
    "completion comes before a passed deadline": ("run=5:dead", """
        t+6   complete r1 t1           -> DeadlinePassed t1 run, TaskCompleted t1
    """),
    "a requested cancel comes before a passed deadline": ("run=5:dead", """
        t+6   cancel   t1              -> DeadlinePassed t1 run, CancelRequested t1
        t+7   fail     r1 t1           -> AttemptFailed t1 CANCELLED
    """),
    "a requested cancel comes before fatal": ("", """
        t+1   cancel   t1
        t+2   fail     r1 t1 fatal     -> AttemptFailed t1 CANCELLED
    """),
    "a requested cancel comes before the lost-robot policy": ("policy=ask", """
        t+1   cancel   t1
        t+20  wait                     -> LeaseExpired t1 CANCELLED held=True held_until=
    """),
    "a requested cancel comes before poison": ("lost_max=1", """
        t+1   cancel   t1
        t+20  wait                     -> LeaseExpired t1 CANCELLED held=False
    """),
    "a passed deadline with dead comes before fatal": ("run=5:dead", """
        t+6   fail     r1 t1 fatal     -> DeadlinePassed t1 run, AttemptFailed t1 DEAD dead_reason=deadline
    """),
    "a passed deadline with cancel comes before fatal": ("end=5:cancel", """
        t+6   fail     r1 t1 fatal     -> DeadlinePassed t1 end, AttemptFailed t1 CANCELLED
    """),
    "a passed deadline with alarm changes nothing": ("run=5:alarm", """
        t+6   fail     r1 t1           -> DeadlinePassed t1 run alarm, AttemptFailed t1 WAITING
    """),
    "a passed deadline comes before the lost-robot policy": ("run=5:dead policy=never", """
        t+5   wait                     -> DeadlinePassed t1 run
        t+20  wait                     -> LeaseExpired t1 DEAD dead_reason=deadline held=True held_until=
    """),
    "a passed deadline comes before poison": ("run=5:dead lost_max=1", """
        t+5   wait                     -> DeadlinePassed t1 run
        t+20  wait                     -> LeaseExpired t1 DEAD dead_reason=deadline held=False
    """),
    "fatal comes before the limit of failures": ("failures_max=1", """
        t+1   fail     r1 t1 fatal     -> AttemptFailed t1 DEAD dead_reason=fatal
    """),
    "failures at the limit": ("failures_max=1", """
        t+1   fail     r1 t1           -> AttemptFailed t1 DEAD dead_reason=failed failures=1
    """),
    "lost at the limit under requeue, at once": ("lost_max=1", """
        t+20  wait                     -> LeaseExpired t1 DEAD dead_reason=poison
    """),
    "lost at the limit under wait, when the wait ends": ("lost_max=1 policy=wait wait=30", """
        t+20  wait                     -> LeaseExpired t1 LOST lost=1
        t+50  wait                     -> LostWaitEnded t1 DEAD dead_reason=poison
    """),
    "lost at the limit under wait, when the robot says that it stopped": ("lost_max=1 policy=wait wait=30", """
        t+20  wait                     -> LeaseExpired t1 LOST lost=1
        t+21  stopped  r1 t1 shutdown  -> AttemptStopped t1 DEAD dead_reason=poison
    """),
    "lost at the limit under ask: never": ("lost_max=1 policy=ask", """
        t+20  wait                     -> LeaseExpired t1 LOST lost=1
        t+21  stopped  r1 t1 shutdown  -> AttemptStopped t1 WAITING lost=1
    """),
    "lost at the limit under never: never": ("lost_max=1 policy=never", """
        t+999 wait                     -> LeaseExpired t1 LOST lost=1
    """),
    "the policy requeue": ("", """
        t+20  wait                     -> LeaseExpired t1 WAITING wait_until=
    """),
    "the own deadline follows the policy requeue": ("", """
        t+9   stopped  r1 t1 own_deadline -> AttemptStopped t1 WAITING lost=1, TaskAssigned t1 #2
    """),
    "the own deadline follows the policy wait": ("policy=wait wait=30", """
        t+4   stopped  r1 t1 own_deadline -> AttemptStopped t1 LOST lost=1 wait_until=1790000074000
        t+34  wait                     -> LostWaitEnded t1 WAITING
    """),
    "the own deadline follows the policy ask": ("policy=ask", """
        t+4   stopped  r1 t1 own_deadline -> AttemptStopped t1 LOST lost=1 wait_until=
    """),
    "LOST under wait: what stopped goes on": ("policy=wait wait=30", """
        t+20  wait                     -> LeaseExpired t1 LOST
        t+21  stopped  r1 t1 cancel    -> AttemptStopped t1 WAITING
    """),
    "LOST under ask: stopped(cancel) stays LOST": ("policy=ask", """
        t+20  wait                     -> LeaseExpired t1 LOST
        t+21  stopped  r1 t1 cancel    -> AttemptStopped t1 LOST
    """),
    "LOST under ask: stopped(stop) leads back": ("policy=ask", """
        t+20  wait                     -> LeaseExpired t1 LOST
        t+21  stopped  r1 t1 stop      -> AttemptStopped t1 WAITING
    """),
    "LOST under never: bye leads back": ("policy=never", """
        t+20  wait                     -> LeaseExpired t1 LOST
        t+21  bye      r1              -> AttemptStopped t1 WAITING bye, RobotSessionEnded r1 bye, ack
    """),
    "LOST under never: what stopped by its own deadline may be said to be idle later": ("policy=never", """
        t+20  wait                     -> LeaseExpired t1 LOST
        t+21  stopped  r1 t1 own_deadline -> AttemptStopped t1 LOST
        t+22  again                    -> ack, nothing
        t+23  stopped  r1 t1 shutdown #1 -> AttemptStopped t1 WAITING
    """),
    "bye stops what runs": ("", """
        t+1   bye      r1              -> AttemptStopped t1 WAITING bye lost=0, RobotSessionEnded r1 bye
    """),
    "a requested cancel comes before bye": ("", """
        t+1   cancel   t1
        t+2   bye      r1              -> AttemptStopped t1 CANCELLED bye, RobotSessionEnded r1 bye
    """),
    "a passed deadline comes before bye": ("run=5:dead", """
        t+6   bye      r1 -> DeadlinePassed t1, AttemptStopped t1 DEAD dead_reason=deadline, RobotSessionEnded r1
    """),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_which_of_several(row: str) -> None:
    """The row plays as written."""
    options, rows = ROWS[row]

    play(RUNNING.format(options=options) + rows)
