r"""The kernel log as /dev/kmsg gives it, and a file in the same record format in its place.

A record is `PRIO,SEQ,MICROSECONDS,FLAGS;TEXT`, then optional ` KEY=value` lines (the dictionary,
dropped here). Bytes outside printable ASCII come as `\xNN`. The facility (PRIO >> 3) tells who wrote
it: user space can choose any but 0, so readers further on accept only 0; here every record passes
with its facility, because a sequence without holes is what makes losses countable.

The ring cannot be sought by sequence number, so following starts at the oldest record and skips
(≤ 8 ms for a whole ring). Overwritten records show as a hole in the numbers: a KernelGap. Source:
Documentation/ABI/testing/dev-kmsg of the Linux kernel.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import IO

from komainu.clients.inotify import Watch
from komainu.clients.journal import previous_boot_lines
from komainu.core.errors import OutsideError
from komainu.ports import KernelGap, KernelRecord

RECORD_BYTES = 8192
"""The kernel's CONSOLE_EXT_LOG_MAX; a smaller buffer fails with EINVAL and reads nothing."""
_YIELD_EVERY = 256
"""Records between two chances for the rest of the agent to run, during a flood."""
_HEAD = re.compile(rb"(\d{1,10}),(\d{1,19}),(\d{1,19}),[^;\n]*;")
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def host_boot_id() -> str:
    """This boot of this host."""
    return _BOOT_ID.read_text("ascii").strip()


def parse_record(raw: bytes) -> KernelRecord | None:
    """Read one record; None when it is not one (a torn or foreign line)."""
    head = _HEAD.match(raw)
    if head is None:
        return None
    text = raw[head.end() :].split(b"\n", 1)[0]
    if b"\\x" in text:
        text = _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), text)
    prio = int(head[1])
    return KernelRecord(
        seq=int(head[2]),
        mono_us=int(head[3]),
        facility=prio >> 3,
        level=prio & 7,
        text=text.decode("utf-8", "replace"),
    )


class _Sequence:
    """Skips what was read before, and turns holes in the numbers into gaps."""

    def __init__(self, after_seq: int | None) -> None:
        self._last = after_seq

    def take(self, record: KernelRecord) -> Iterator[KernelRecord | KernelGap]:
        if self._last is not None:
            if record.seq <= self._last:
                return
            if record.seq > self._last + 1:
                yield KernelGap(lost=record.seq - self._last - 1, next_seq=record.seq)
        self._last = record.seq
        yield record


class Kmsg:
    """/dev/kmsg of this host."""

    def __init__(self, path: Path = Path("/dev/kmsg")) -> None:
        self._path = path
        self._tail: int | None = None
        self._newest: int | None = None

    def boot_id(self) -> str:
        return host_boot_id()

    async def follow(self, after_seq: int | None) -> AsyncIterator[KernelRecord | KernelGap]:
        fd = self._open()
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(fd, readable.set)
        sequence, count = _Sequence(after_seq), 0
        try:
            while True:
                raw = self._read(fd)
                if raw is None:
                    readable.clear()
                    await readable.wait()
                    continue
                record = parse_record(raw)
                for item in sequence.take(record) if record else ():
                    yield item
                count += 1
                if count % _YIELD_EVERY == 0:
                    await asyncio.sleep(0)
        finally:
            loop.remove_reader(fd)
            os.close(fd)

    async def drained(self) -> int | None:
        """Reads on from where the last call stopped; only the first one reads the whole ring."""
        if self._tail is None:
            self._tail = self._open()
        while (raw := self._read(self._tail)) is not None:
            record = parse_record(raw)
            if record is not None:
                self._newest = record.seq
        return self._newest

    async def previous_boot(self) -> Sequence[str]:
        return await asyncio.to_thread(previous_boot_lines)

    def close(self) -> None:
        if self._tail is not None:
            os.close(self._tail)
            self._tail = None

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise OutsideError(
                f"kernel log {self._path} cannot be opened: {error.strerror}. Reading it needs root "
                f"or CAP_SYSLOG (systemd: AmbientCapabilities=CAP_SYSLOG)."
            ) from error

    def _read(self, fd: int) -> bytes | None:
        """The next record; None when there is none now. After EPIPE (records overwritten under us)
        the kernel has moved to the oldest it keeps, and the numbers tell how many were lost.
        """
        while True:
            try:
                raw = os.read(fd, RECORD_BYTES)
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno != errno.EPIPE:
                    raise OutsideError(
                        f"kernel log {self._path} cannot be read: {error.strerror}. Reading it "
                        f"needs root or CAP_SYSLOG."
                    ) from error
            else:
                if not raw:
                    raise OutsideError(
                        f"kernel log {self._path} has an end; expected a device, which has none. "
                        f'To follow a file, set agent.kernel_log = "file:{self._path}".'
                    )
                return raw


class KmsgFile:
    """A growing regular file of kernel records, one a line: replayed logs, the lab, tests.

    Sequence numbers must grow by one, as the kernel's do; holes are reported as losses, so a test
    makes an overrun by leaving numbers out, and a file cut short is read again from its start.
    `PATH.boot_id`, where it exists, plays the host's boot id (change it to play a reboot), and
    `PATH.previous` the lines of the boot before.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def boot_id(self) -> str:
        try:
            return self._beside(".boot_id").read_text("ascii").strip()
        except FileNotFoundError:
            return host_boot_id()

    async def follow(self, after_seq: int | None) -> AsyncIterator[KernelRecord | KernelGap]:
        sequence = _Sequence(after_seq)
        watch = Watch(self._path)
        try:
            async for line in self._lines(watch):
                record = parse_record(line)
                for item in sequence.take(record) if record else ():
                    yield item
        finally:
            watch.close()

    async def _lines(self, watch: Watch) -> AsyncIterator[bytes]:
        file = self._open()
        rest, count = b"", 0
        try:
            while True:
                block = file.read(1 << 16)
                if not block:
                    await watch.changed()
                    if self._replaced(file):
                        file.close()
                        file, rest = self._open(), b""
                    continue
                *lines, rest = (rest + block).split(b"\n")
                for line in lines:
                    yield line
                    count += 1
                    if count % _YIELD_EVERY == 0:
                        await asyncio.sleep(0)
        finally:
            file.close()

    def _replaced(self, file: IO[bytes]) -> bool:
        """Whether the path now names another file, or one shorter than what was read."""
        try:
            now, ours = self._path.stat(), os.fstat(file.fileno())
        except FileNotFoundError:
            return False
        return now.st_ino != ours.st_ino or now.st_size < file.tell()

    async def drained(self) -> int | None:
        with self._open() as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 4 * RECORD_BYTES))
            complete = file.read().rpartition(b"\n")[0]
        records = (parse_record(line) for line in reversed(complete.split(b"\n")))
        return next((record.seq for record in records if record is not None), None)

    async def previous_boot(self) -> Sequence[str]:
        try:
            text = self._beside(".previous").read_text("utf-8", "replace")
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise OutsideError(
                f"kernel log file {self._path}.previous cannot be read: {error.strerror}. Check its "
                f"owner and mode, or remove it."
            ) from error
        return text.splitlines()

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _open(self) -> IO[bytes]:
        try:
            return self._path.open("rb", buffering=0)
        except OSError as error:
            raise OutsideError(
                f"kernel log file {self._path} cannot be opened: {error.strerror}. Check "
                f"`agent.kernel_log` in komainu.toml."
            ) from error


def kernel_log(setting: str) -> Kmsg | KmsgFile:
    """The kernel log that `agent.kernel_log` names."""
    if setting.startswith("file:"):
        return KmsgFile(Path(setting.removeprefix("file:")))
    return Kmsg(Path(setting))
