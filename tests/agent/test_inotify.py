"""Waking up at changes, with inotify and without."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from komainu.clients import inotify
from komainu.clients.inotify import Watch


def _descriptors() -> int:
    """inotify descriptors of this process: others come and go with what earlier tests left behind."""
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += str(one.readlink()) == "anon_inode:inotify"
    return found


async def test_many_watches_share_one_descriptor_and_give_it_back(tmp_path: Path) -> None:
    before = _descriptors()
    watches = [Watch(tmp_path / f"file{n}") for n in range(50)]
    assert _descriptors() <= before + 1
    for watch in watches:
        watch.close()
    assert _descriptors() == before


async def test_only_the_file_that_changed_wakes(tmp_path: Path) -> None:
    one, other = Watch(tmp_path / "one"), Watch(tmp_path / "other")
    waits = asyncio.ensure_future(one.changed()), asyncio.ensure_future(other.changed())
    await asyncio.sleep(0)
    (tmp_path / "one").write_text("x")
    await asyncio.wait_for(waits[0], 2)
    await asyncio.sleep(0.02)
    assert not waits[1].done()
    waits[1].cancel()
    one.close()
    other.close()


async def test_a_change_before_the_wait_is_not_missed(tmp_path: Path) -> None:
    watch = Watch(tmp_path / "file")
    (tmp_path / "file").write_text("x")
    await asyncio.sleep(0.02)
    await asyncio.wait_for(watch.changed(), 2)
    watch.close()


async def test_a_replaced_file_wakes(tmp_path: Path) -> None:
    watch = Watch(tmp_path / "file")
    (tmp_path / "new").write_text("x")
    (tmp_path / "new").rename(tmp_path / "file")
    await asyncio.wait_for(watch.changed(), 2)
    watch.close()


async def test_without_an_instance_it_polls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inotify, "_instance", lambda: None)
    watch = Watch(tmp_path / "file")
    await asyncio.wait_for(watch.changed(), 1)
    watch.close()


async def test_a_folder_that_is_not_there_is_polled_for(tmp_path: Path) -> None:
    before = _descriptors()
    watch = Watch(tmp_path / "none" / "file")
    await asyncio.wait_for(watch.changed(), 1)
    assert _descriptors() == before
    watch.close()
