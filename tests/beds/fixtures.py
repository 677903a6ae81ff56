"""The beds as pytest fixtures. Import what a test needs: `from tests.beds.fixtures import slurm_bed`.

A bed that cannot start fails the test; set KOMAINU_KEEP_BEDS=1 to keep its logs for a look.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.beds.slurm import BedOptions, SlurmBed


@contextmanager
def bed_of(options: BedOptions) -> Iterator[SlurmBed]:
    """A bed for as long as the block lasts. Its path is short, since sockets lie in it."""
    root = Path(tempfile.mkdtemp(prefix="komainu-bed-", dir="/tmp"))
    bed = SlurmBed.up(root, options)
    try:
        yield bed
    finally:
        bed.down()
        if not os.environ.get("KOMAINU_KEEP_BEDS"):
            shutil.rmtree(root)


@pytest.fixture(scope="session")
def slurm_bed() -> Iterator[SlurmBed]:
    """Eight nodes with eight GPUs each, with accounting."""
    with bed_of(BedOptions(nodes=8)) as bed:
        yield bed
