"""Benchmarks: the whole product on one machine, measured from its log, beside bare loops of the same run."""
