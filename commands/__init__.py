"""The pure core: what may be asked, what happened, and what follows; no clock, no chance, no input or output."""
