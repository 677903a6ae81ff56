"""Komainu: the guardians at the gate of an AI supercomputer."""

__version__ = "0.1.0"
