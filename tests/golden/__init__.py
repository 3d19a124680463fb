"""Recorded logs: what was written once must mean the same for ever. `python -m tests.golden.record` adds new ones."""
