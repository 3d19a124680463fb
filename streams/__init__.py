"""What runs on the log: the log port and its adapters, the owner of a partition, snapshots, roll-ups."""
