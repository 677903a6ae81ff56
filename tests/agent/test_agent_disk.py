"""A disk that is full or read-only: a clear error, a safe verdict, and back to normal after."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.agent.conftest import Bed
from tests.agent.fakes import BOOT, XID_79, until

from komainu.core.decision import OrderKind
from komainu.core.verdict import Verdict

needs_mount = pytest.mark.skipif(
    os.geteuid() != 0
    or subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode != 0,
    reason="mounting a small file system needs root",
)


class _Disk:
    """A small tmpfs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._mount("-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", str(folder))

    def _mount(self, *arguments: str) -> None:
        subprocess.run(["mount", *arguments], check=True, capture_output=True)

    def fill(self) -> None:
        ballast = self.folder / "ballast"
        with ballast.open("ab", buffering=0) as file:
            for size in (65536, 4096, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue

    def empty(self) -> None:
        (self.folder / "ballast").unlink()

    def read_only(self, *, on: bool) -> None:
        self._mount("-o", f"remount,{'ro' if on else 'rw'}", str(self.folder))

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[_Disk]:
    one = _Disk(tmp_path / "disk")
    yield one
    one.close()


def _on(bed: Bed, **places: Path) -> None:
    bed.config = msgspec.structs.replace(bed.config, **places)


@needs_mount
async def test_a_full_state_disk_makes_an_ok_node_unknown_and_says_which_file(
    bed: Bed, disk: _Disk
) -> None:
    _on(bed, state_dir=disk.folder)
    await bed.started()
    await bed.becomes("OK/settled")
    disk.fill()
    bed.server.order(OrderKind.POLICY, value="{}")
    await until(lambda: bed.verdict.verdict is Verdict.UNKNOWN)
    assert bed.file().verdict is Verdict.UNKNOWN
    assert str(disk.folder) in bed.file().message
    disk.empty()
    await bed.clock.forward(20)
    await bed.becomes("OK/settled")


@needs_mount
async def test_a_fault_on_a_full_state_disk_is_refused_shipped_and_kept_when_there_is_room(
    bed: Bed, disk: _Disk
) -> None:
    _on(bed, state_dir=disk.folder)
    await bed.started()
    await bed.becomes("OK/settled")
    disk.fill()
    bed.kernel.write(XID_79)
    await bed.becomes("FAULT/confirming")
    assert bed.file().verdict is Verdict.FAULT
    await until(lambda: bed.server.codes == ["GPU-XID-79"])
    bed.server.order(OrderKind.HOLD, reason="r")
    await bed.becomes("FAULT/settled")
    disk.empty()
    await bed.clock.forward(6)
    await until(lambda: not bed.node.disk.trouble, "recovery")
    await bed.kill()
    bed.server.down = True
    await bed.started()
    assert bed.word == "FAULT/settled"
    assert len(bed.server.findings) == 1


@needs_mount
async def test_a_read_only_state_disk_is_told_and_its_fault_still_stands(
    bed: Bed, disk: _Disk
) -> None:
    _on(bed, state_dir=disk.folder)
    await bed.started()
    bed.kernel.write(XID_79)
    await until(lambda: bed.server.findings)
    await bed.stop()
    disk.read_only(on=True)
    await bed.started()
    assert bed.verdict.verdict is Verdict.FAULT
    assert str(disk.folder) in bed.node.disk.trouble
    await bed.stop()
    disk.read_only(on=False)


@needs_mount
async def test_starting_on_a_read_only_disk_is_unknown_and_recovers(bed: Bed, disk: _Disk) -> None:
    _on(bed, state_dir=disk.folder)
    disk.read_only(on=True)
    await bed.started()
    await bed.becomes("UNKNOWN/settled")
    assert "cannot be opened" in bed.file().message
    bed.kernel.write(XID_79)
    await bed.becomes("FAULT/confirming")
    disk.read_only(on=False)
    await bed.clock.forward(6)
    await until(lambda: not bed.node.disk.trouble, "recovery")
    await bed.kill()
    await bed.started()
    assert bed.verdict.verdict is Verdict.FAULT


@needs_mount
async def test_where_the_run_directory_is_full_the_gate_is_left_the_other_copy(
    bed: Bed, disk: _Disk
) -> None:
    _on(bed, run_dir=disk.folder)
    await bed.started()
    await bed.becomes("OK/settled")
    disk.fill()
    await bed.clock.forward(2)
    assert bed.verdict.verdict is Verdict.UNKNOWN
    assert "run-dir" in bed.verdict.message
    bed.kernel.write(XID_79)
    await bed.becomes("FAULT/confirming")
    assert not (disk.folder / "verdict").exists()
    assert bed.file(kept=True).verdict is Verdict.FAULT
    disk.empty()
    await bed.clock.forward(6)
    assert bed.file().verdict is Verdict.FAULT


async def test_a_damaged_state_file_is_told_and_left_alone(bed: Bed) -> None:
    bed.config.state_dir.mkdir()
    spool = bed.config.state_dir / "agent.db"
    spool.write_bytes(b"not a database, and longer than its header" * 100)
    await bed.started()
    await bed.becomes("UNKNOWN/settled")
    assert "move it away" in bed.node.disk.trouble
    await bed.clock.forward(12)
    assert spool.read_bytes().startswith(b"not a database")
    assert bed.file().boot_id == BOOT
