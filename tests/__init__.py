"""Tests of Fleetlog; the folders follow the packages."""
