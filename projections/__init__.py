"""What is computed from events alone: tables, queries, audit and exports."""
