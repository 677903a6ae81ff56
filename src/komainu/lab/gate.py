"""The real gate, run as slurmd would run it: prolog and epilog of deploy/slurm, once per job and node."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from pathlib import Path

from komainu.core.errors import ConfigError
from komainu.core.names import JobId, NodeName

CHECKOUT = Path(__file__).parents[3] / "deploy" / "slurm"
INSTALLED = Path(__file__).parents[1] / "deploy" / "slurm"
"""Where the wheel carries the same scripts."""
GONE = 124
"""Exit code for a script that never came back, as timeout(1) has it."""


def scripts() -> Path:
    """The directory of prolog and epilog: the checkout's, else the one in the wheel."""
    for folder in (CHECKOUT, INSTALLED):
        if (folder / "prolog").is_file():
            return folder
    raise ConfigError(
        f"the gate's scripts were not found in {CHECKOUT} or {INSTALLED}. Run the lab from a clone "
        "of the repository, or install Komainu from its wheel."
    )


class LabGate:
    """Prologs and epilogs of all lab nodes; each node's directories are `home/NODE/run` and `…/state`."""

    def __init__(self, home: Path, *, folder: Path | None = None, bound_s: float = 70.0) -> None:
        """`folder`: other scripts than the product's. `bound_s`: longer than any wait the gate itself
        allows (60 s).
        """
        self._scripts = folder or scripts()
        self._conf = home / "gate.conf"
        self._bound_s = bound_s
        self._conf.write_text(f"run_dir={home}/%n/run\nstate_dir={home}/%n/state\n", "ascii")

    async def prolog(self, job: JobId, node: NodeName, user: str, gpus: Sequence[int]) -> int:
        """The prolog's exit code: anything but 0 makes Slurm drain the node and hold the job."""
        return await self._run("prolog", job, node, user, gpus)

    async def epilog(self, job: JobId, node: NodeName, user: str, gpus: Sequence[int]) -> int:
        return await self._run("epilog", job, node, user, gpus)

    async def _run(
        self, script: str, job: JobId, node: NodeName, user: str, gpus: Sequence[int]
    ) -> int:
        process = await asyncio.create_subprocess_exec(
            str(self._scripts / script),
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=PIPE,
            env={
                "KOMAINU_GATE_CONF": str(self._conf),
                "SLURMD_NODENAME": node,
                "SLURM_JOB_ID": job,
                "SLURM_JOB_USER": user,
                "SLURM_JOB_UID": "1000",
                "SLURM_JOB_GPUS": ",".join(map(str, gpus)),
            },
        )
        try:
            async with asyncio.timeout(self._bound_s):
                await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return GONE
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        return process.returncode or 0
