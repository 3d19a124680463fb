"""Chaos on a genuine cluster of three brokers; `python -m tests.chaos --rounds N --seed S` plays it."""
