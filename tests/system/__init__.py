"""The whole product in processes of its own, killed for real."""
