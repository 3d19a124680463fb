"""Measurements that need inputs or time of their own; each is a module with `python -m benchmarks.NAME --help`."""
