"""Fleetlog beside what people would pick instead: the same works, in one run, on one machine (`make bench-peers`)."""
