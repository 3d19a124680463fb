"""The live view of a fleet: what is known, how it is drawn, and the loop that does both."""
