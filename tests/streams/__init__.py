"""Tests of the log: its port, its adapters, the owner of a partition."""
