"""The lab's kernel log numbers, keeps and loses records as a real ring does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from komainu.lab.kernel_log import USER, LabKernelLog, host_boot_id
from komainu.ports import KernelGap, KernelLog, KernelRecord


def log_of(ring: int = 8) -> LabKernelLog:
    return LabKernelLog(uptime_s=lambda: 12.5, ring=ring)


async def take(source: AsyncIterator[KernelRecord | KernelGap], count: int) -> list[object]:
    return [await asyncio.wait_for(anext(source), 2) for _ in range(count)]


def test_it_satisfies_the_port() -> None:
    log: KernelLog = log_of()
    assert log.boot_id() == host_boot_id()


async def test_a_reader_without_a_cursor_gets_all_that_is_kept_and_then_what_comes() -> None:
    log = log_of()
    log.write("one")
    source = log.follow(None)
    assert [record.text for record in await take(source, 1)] == ["one"]  # type: ignore[attr-defined]
    waiting = asyncio.ensure_future(take(source, 2))
    await asyncio.sleep(0)
    log.write("two")
    log.write("three")
    assert [record.seq for record in await waiting] == [2, 3]  # type: ignore[attr-defined]


async def test_a_reader_that_returns_gets_only_what_is_new() -> None:
    log = log_of()
    for number in range(4):
        log.write(str(number))
    assert [record.seq for record in await take(log.follow(2), 2)] == [3, 4]  # type: ignore[attr-defined]


async def test_what_was_overwritten_is_a_counted_gap() -> None:
    log = log_of(ring=3)
    for number in range(10):
        log.write(str(number))
    gap, *records = await take(log.follow(2), 4)
    assert gap == KernelGap(lost=5, next_seq=8)
    assert [record.seq for record in records] == [8, 9, 10]  # type: ignore[attr-defined]


async def test_drained_is_the_newest_number_or_none() -> None:
    log = log_of()
    assert await log.drained() is None
    log.write("one")
    assert await log.drained() == 1


def test_a_user_s_line_never_has_the_kernel_s_facility() -> None:
    assert log_of().write("NVRM: Xid (PCI:0000:01:00): 79, spoof", facility=USER).facility != 0
