"""What follows from what is asked or said: events and outcomes; deciding changes nothing."""

from commands.decide.answers import BodyRef, Context, Decision, Draft
from commands.decide.table import decide

__all__ = ["BodyRef", "Context", "Decision", "Draft", "decide"]
