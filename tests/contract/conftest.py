"""The two grounds as one fixture."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.beds.fixtures import slurm_bed
from tests.contract.grounds import Ground, LabGround, SlurmGround

__all__ = ["slurm_bed"]


@pytest.fixture(params=["lab", pytest.param("slurm", marks=pytest.mark.slurm)])
async def ground(request: pytest.FixtureRequest) -> AsyncIterator[Ground]:
    if request.param == "lab":
        lab = LabGround()
        living = asyncio.create_task(lab.scheduler.run())
        yield lab
        living.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await living
    else:
        slurm = SlurmGround(request.getfixturevalue("slurm_bed"))
        await slurm.clean()
        yield slurm
        await slurm.clean()
