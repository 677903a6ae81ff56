"""Faults of components: from kernel log lines, by the catalogue, to findings."""
