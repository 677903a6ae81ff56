"""The GPUs of this host, read from /proc and /sys alone.

NVML stays out of this process: it costs 17 MB, and a dead GPU's firmware blocks its caller. The
driver's own list is a file per GPU and does not touch the device.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from komainu.core.wire import GpuSeen, Hardware

_NVIDIA = "0x10de"
_GPU_CLASSES = ("0x0302", "0x0300")
"""PCI classes 3D controller and VGA controller; 0x0680 (NVSwitch) and audio are not GPUs."""


class SysProbe:
    """What the kernel and the NVIDIA driver list under `root` (a test's folder, else /)."""

    def __init__(self, rack: str = "", root: Path = Path("/")) -> None:
        self._rack, self._root = rack, root

    async def hardware(self) -> Hardware | None:
        """None when GPUs are plugged in and the driver lists none: then nobody can tell."""
        return await asyncio.to_thread(self.hardware_now)

    def hardware_now(self) -> Hardware | None:
        try:
            listed = self._listed_by_driver()
            if not listed and self._plugged_in():
                return None
        except OSError:
            return None
        return Hardware(rack=self._rack, gpus=listed)

    def _listed_by_driver(self) -> tuple[GpuSeen, ...]:
        folder = self._root / "proc/driver/nvidia/gpus"
        if not folder.is_dir():
            return ()
        texts = [(one / "information").read_text("utf-8", "replace") for one in folder.iterdir()]
        found = sorted(
            (_fields(text) for text in texts), key=lambda one: one.get("Bus Location", "")
        )
        return tuple(
            GpuSeen(
                index=index,
                pci=_pci(one.get("Bus Location", "")),
                uuid=one.get("GPU UUID", ""),
                model=one.get("Model", ""),
            )
            for index, one in enumerate(found)
        )

    def _plugged_in(self) -> bool:
        folder = self._root / "sys/bus/pci/devices"
        return folder.is_dir() and any(_is_gpu(device) for device in folder.iterdir())


def _fields(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _pci(location: str) -> str:
    """`0000:41:00.0` as the kernel log names it: without the function."""
    return location.lower().partition(".")[0]


def _is_gpu(device: Path) -> bool:
    try:
        vendor = (device / "vendor").read_text("ascii").strip()
        return vendor == _NVIDIA and (device / "class").read_text("ascii").startswith(_GPU_CLASSES)
    except FileNotFoundError:  # unplugged while we looked
        return False
