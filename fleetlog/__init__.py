"""The command line, the settings, and the one place where adapters are chosen."""
