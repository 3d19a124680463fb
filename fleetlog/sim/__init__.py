"""The whole product in one process on a virtual clock, with a seeded source of chance and of faults.

The owners, the gateways' sessions, the projector and the robots' bookkeeping are the product's own code; what stands
in for the rest is the scheduler, the network between them, the hosts' clocks, and who owns which partition.
"""
