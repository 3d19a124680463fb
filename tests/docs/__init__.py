"""Tests of the documentation: what is generated is current, what is shown was run."""
