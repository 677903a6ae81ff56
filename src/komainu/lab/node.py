"""A make-believe node: its GPUs, kernel log and probe, and the directories its real agent writes."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable
from pathlib import Path

from komainu.core.names import NodeKey
from komainu.core.wire import GpuSeen, Hardware
from komainu.lab.faults import Fault
from komainu.lab.kernel_log import LabKernelLog
from komainu.lab.lines import NOISE, printed

PCI_BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
"""Where an eight-GPU server has them."""
MODEL = "NVIDIA H100 80GB HBM3"


def gpus_of(key: NodeKey, count: int) -> tuple[GpuSeen, ...]:
    """The same GPUs, with the same UUIDs and serial numbers, every time the lab is started."""
    return tuple(
        GpuSeen(
            index=index,
            pci=f"{index // len(PCI_BUSES):04x}:{PCI_BUSES[index % len(PCI_BUSES)]}:00",
            uuid=f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{key}/{index}')}",
            serial=f"165{random.Random(f'{key}/{index}').randrange(10**10):010d}",  # noqa: S311
            model=MODEL,
        )
        for index in range(count)
    )


class LabNode:
    """One node. Also satisfies ports.NodeProbe."""

    def __init__(
        self, key: NodeKey, *, rack: str, gpus: int, home: Path, uptime_s: Callable[[], float]
    ) -> None:
        self.key, self.rack, self.home = key, rack, home
        self.gpus = gpus_of(key, gpus)
        self.kernel = LabKernelLog(uptime_s=uptime_s)
        self.broken: dict[Fault, GpuSeen] = {}
        """What has struck and has not been repaired."""
        self._lost: set[int] = set()

    @property
    def run_dir(self) -> Path:
        return self.home / "run"

    @property
    def state_dir(self) -> Path:
        return self.home / "state"

    async def hardware(self) -> Hardware | None:
        """GPUs as the driver lists them: one that fell off the bus is not listed any more."""
        present = tuple(gpu for gpu in self.gpus if gpu.index not in self._lost)
        return Hardware(rack=self.rack, gpus=present)

    async def strike(self, fault: Fault, gpu: int, chance: random.Random) -> None:
        """Let `fault` happen to GPU number `gpu`: its lines appear in the kernel log."""
        hit = self.gpus[gpu % len(self.gpus)]
        self.broken[fault] = hit
        for line in printed(fault, hit, chance):
            if line.after_s:
                await asyncio.sleep(line.after_s)
            self.kernel.write(line.text)
        if fault is Fault.GPU_LOST:
            self._lost.add(hit.index)

    def repair(self) -> None:
        """A technician has been here. The kernel log keeps what it has: only a release forgets."""
        self.broken.clear()
        self._lost.clear()

    def murmur(self, chance: random.Random) -> None:
        """One of the lines a healthy node prints."""
        self.kernel.write(chance.choice(NOISE), level=6)
