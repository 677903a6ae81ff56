"""A real Slurm cluster of our own in one directory: see bed.py, and `python -m tests.beds.slurm`."""

from __future__ import annotations

from tests.beds.slurm.bed import SlurmBed
from tests.beds.slurm.options import BedOptions

__all__ = ["BedOptions", "SlurmBed"]
