"""/dev/kmsg, and the file that plays it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.agent.fakes import XID_79, HandClock

from komainu.clients import kmsg
from komainu.clients.kmsg import Kmsg, KmsgFile, kernel_log, parse_record
from komainu.core.errors import OutsideError
from komainu.core.names import ClusterName, NodeKey, NodeName
from komainu.health.collect import observation_of
from komainu.ports import KernelGap, KernelRecord

DEV = Path("/dev/kmsg")
needs_kmsg = pytest.mark.skipif(
    not os.access(DEV, os.R_OK | os.W_OK), reason="this user may not use /dev/kmsg"
)


def _parsed(raw: bytes) -> KernelRecord:
    record = parse_record(raw)
    assert record is not None
    return record


def test_a_record_is_read_into_its_parts() -> None:
    assert parse_record(b"6,339,5140900,-;NET: Registered\n SUBSYSTEM=net\n") == KernelRecord(
        339, 5140900, 0, 6, "NET: Registered"
    )


def test_the_facility_tells_who_wrote_it() -> None:
    assert _parsed(b"12,7,99,-;hello").facility == 1
    assert _parsed(b"12,7,99,-;hello").level == 4


def test_more_fields_before_the_text_do_no_harm() -> None:
    assert _parsed(b"6,1,2,c,caller=T1;a;b").text == "a;b"


def test_escapes_become_the_bytes_they_stand_for() -> None:
    record = _parsed(rb"6,1,2,-;tab\x09 backslash\x5c \xc3\xa9 \xff")
    assert record.text == "tab\t backslash\\ é �"


@pytest.mark.parametrize(
    "raw", [b"", b"hello", b" KEY=value", b"6,1,2", b"6,,2,-;x", b"-1,1,2,-;x", b"6," + b"9" * 30]
)
def test_what_is_not_a_record_is_none(raw: bytes) -> None:
    assert parse_record(raw) is None


def test_lines_after_the_first_are_never_text() -> None:
    spoof = b"6,1,2,-;usb 1-1: new\n NVRM: Xid (PCI:0000:41:00): 79, x\nNVRM: Xid"
    assert _parsed(spoof).text == "usb 1-1: new"


class _Taker:
    """Takes records as they come."""

    def __init__(self, records: AsyncIterator[KernelRecord | KernelGap]) -> None:
        self.got: list[KernelRecord | KernelGap] = []
        self._task = asyncio.create_task(self._take(records))

    @property
    def records(self) -> list[KernelRecord]:
        return [one for one in self.got if isinstance(one, KernelRecord)]

    async def _take(self, records: AsyncIterator[KernelRecord | KernelGap]) -> None:
        async for one in records:
            self.got.append(one)

    async def until(self, count: int) -> None:
        for _ in range(1000):
            if len(self.got) >= count or self._task.done():
                break
            await asyncio.sleep(0.002)
        if self._task.done():
            await self._task
        assert len(self.got) >= count, self.got

    async def end(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


def _line(seq: int, text: str = "x", prio: int = 6) -> str:
    return f"{prio},{seq},{seq * 10},-;{text}\n"


async def test_a_file_is_followed_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(_line(1, "a"))
    taker = _Taker(KmsgFile(path).follow(None))
    await taker.until(1)
    with path.open("a") as file:
        file.write(_line(2, "b") + _line(3, "c")[:4])
        file.flush()
        await taker.until(2)
        file.write(_line(3, "c")[4:])
        file.flush()
        await taker.until(3)
    assert [one.text for one in taker.records] == ["a", "b", "c"]
    await taker.end()


async def test_a_line_reaches_the_reader_within_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(_line(0))
    taker = _Taker(KmsgFile(path).follow(None))
    await taker.until(1)
    waits = []
    for seq in range(1, 30):
        began = time.perf_counter()
        with path.open("a") as file:
            file.write(_line(seq))
        while len(taker.got) <= seq:  # noqa: ASYNC110  the wait is what is measured
            await asyncio.sleep(0)
        waits.append(time.perf_counter() - began)
    assert sorted(waits)[len(waits) // 2] < 0.05
    await taker.end()


async def test_what_was_read_before_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(_line(seq) for seq in range(10)))
    taker = _Taker(KmsgFile(path).follow(6))
    await taker.until(3)
    assert [one.seq for one in taker.records] == [7, 8, 9]
    await taker.end()


async def test_overwritten_records_are_a_gap_with_their_number(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(_line(100) + _line(104))
    taker = _Taker(KmsgFile(path).follow(90))
    await taker.until(4)
    assert taker.got[0] == KernelGap(lost=9, next_seq=100)
    assert taker.got[2] == KernelGap(lost=3, next_seq=104)
    await taker.end()


async def test_from_the_oldest_kept_there_is_no_gap(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(_line(100))
    taker = _Taker(KmsgFile(path).follow(None))
    await taker.until(1)
    assert [one.seq for one in taker.records] == [100]
    await taker.end()


async def test_a_file_cut_short_is_read_again_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(_line(seq) for seq in range(5)))
    taker = _Taker(KmsgFile(path).follow(None))
    await taker.until(5)
    path.write_text(_line(7))
    await taker.until(7)
    assert taker.got[5:] == [KernelGap(2, 7), parse_record(_line(7).rstrip().encode())]
    await taker.end()


async def test_a_missing_file_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(OutsideError, match=r"agent\.kernel_log"):
        await anext(aiter(KmsgFile(tmp_path / "none").follow(None)))


async def test_drained_is_the_newest_number(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("")
    assert await KmsgFile(path).drained() is None
    path.write_text("".join(_line(seq, "y" * 900) for seq in range(60)) + "6,60,")
    assert await KmsgFile(path).drained() == 59


async def test_a_file_beside_it_plays_boot_and_reboot(tmp_path: Path) -> None:
    log = KmsgFile(tmp_path / "log")
    assert log.boot_id() == kmsg.host_boot_id()
    boot = str(uuid.uuid4())
    (tmp_path / "log.boot_id").write_text(boot + "\n")
    assert log.boot_id() == boot
    assert list(await log.previous_boot()) == []
    (tmp_path / "log.previous").write_text("[    1.000000] a\n")
    assert list(await log.previous_boot()) == ["[    1.000000] a"]


def test_the_setting_chooses_file_or_device(tmp_path: Path) -> None:
    assert isinstance(kernel_log(f"file:{tmp_path}/x"), KmsgFile)
    assert isinstance(kernel_log("/dev/kmsg"), Kmsg)


@pytest.mark.parametrize("where", ["plain", "/dev/null"])
async def test_a_log_with_an_end_is_no_device_and_the_setting_is_named(
    tmp_path: Path, where: str
) -> None:
    (tmp_path / "plain").write_text("6,1,1,-;a\n")
    log = Kmsg(tmp_path / where)
    for _ in range(2):
        with pytest.raises(OutsideError, match=r'agent\.kernel_log = "file:/'):
            await log.drained()
    log.close()


async def test_an_unreadable_device_names_the_capability(tmp_path: Path) -> None:
    with pytest.raises(OutsideError, match="CAP_SYSLOG"):
        await anext(aiter(Kmsg(tmp_path / "none").follow(None)))


def _say(line: str) -> None:
    """Write to the real kernel log, as any root process may."""
    DEV.write_text(line + "\n")


@needs_kmsg
async def test_the_real_log_is_read_and_followed_and_counted() -> None:
    log = Kmsg()
    newest = await log.drained() or 0
    taker = _Taker(log.follow(newest))
    mark = f"komainu-test-{uuid.uuid4()}"
    _say(f"<4>{mark}")
    await taker.until(1)
    found = next(one for one in taker.records if one.text == mark)
    assert found.seq > newest
    assert (await log.drained() or 0) >= found.seq
    await taker.end()
    log.close()


@needs_kmsg
async def test_a_user_cannot_forge_a_kernel_record() -> None:
    log = Kmsg()
    taker = _Taker(log.follow(await log.drained()))
    mark = f"{XID_79} {uuid.uuid4()}"
    _say(f"<0>{mark}")  # asks for facility 0, the kernel's own
    await taker.until(1)
    found = next(one for one in taker.records if one.text == mark)
    assert found.facility != 0
    key = NodeKey(ClusterName("c"), NodeName("n"))
    now = HandClock().now()
    assert observation_of(found, key=key, boot_id=log.boot_id(), at=now) is None
    genuine = KernelRecord(found.seq, found.mono_us, 0, found.level, found.text)
    assert observation_of(genuine, key=key, boot_id=log.boot_id(), at=now) is not None
    await taker.end()
    log.close()


async def test_a_ring_that_ran_over_goes_on_at_its_oldest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    answers: list[bytes | OSError] = [
        b"6,10,1,-;a",
        OSError(32, "Broken pipe"),
        b"6,50,1,-;b",
        BlockingIOError(),
    ]
    monkeypatch.setattr("komainu.clients.kmsg.os.read", lambda *_: _answer(answers))
    taker = _Taker(Kmsg(path).follow(9))
    await taker.until(3)
    assert [type(one) for one in taker.got] == [KernelRecord, KernelGap, KernelRecord]
    assert taker.got[1] == KernelGap(lost=39, next_seq=50)
    await taker.end()


def _answer(answers: list[bytes | OSError]) -> bytes:
    answer = answers.pop(0) if len(answers) > 1 else answers[0]
    if isinstance(answer, OSError):
        raise answer
    return answer
