"""Processes of a bed: started in their own session, remembered by PID and start time, and stopped
by nothing else, so that other beds and the machine's own daemons are never touched.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from tests.beds.packages import BedError

# Below the ephemeral range (32768–60999): no outgoing connection can take a port between the test
# and the daemon's bind. Other beds are avoided by the test itself.
_PORTS = range(12000, 32000)


class Started(msgspec.Struct, frozen=True):
    """One process, by what identifies it for as long as the machine runs."""

    pid: int
    started: int
    """Clock ticks after boot, field 22 of /proc/PID/stat."""


def free_ports(count: int) -> list[int]:
    """`count` different TCP ports that nobody listens on now."""
    found: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, k=len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise BedError(f"no {count} free TCP ports in {_PORTS}: close other beds")


def until(holds: Callable[[], bool], what: str, *, within_s: float, every_s: float = 0.05) -> None:
    """Wait until `holds()`; raises BedError naming `what` when it does not come true."""
    end = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > end:
            raise BedError(f"waited {within_s:.0f} s in vain for {what}")
        time.sleep(every_s)


def _stat(pid: int) -> list[str] | None:
    """/proc/PID/stat from field 3 on; None when the process is gone or only waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields


def identify(pid: int) -> Started | None:
    """The process that has `pid` now."""
    fields = _stat(pid)
    return Started(pid, int(fields[19])) if fields else None


def alive(process: Started) -> bool:
    return identify(process.pid) == process


def kill(process: Started, sign: signal.Signals) -> None:
    """Signal exactly this process; one that is gone is no error."""
    if alive(process):
        try:
            os.kill(process.pid, sign)
        except ProcessLookupError:
            return


class Ledger:
    """The processes of one bed, in `processes.json`, so that another run can stop them too."""

    def __init__(self, root: Path) -> None:
        self._file = root / "processes.json"
        self._log = root / "log"
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def read(self) -> dict[str, Started]:
        if not self._file.exists():
            return {}
        return msgspec.json.decode(self._file.read_bytes(), type=dict[str, Started])

    def _write(self, entries: dict[str, Started]) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(entries))
        fresh.replace(self._file)

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> Started:
        """Start a daemon in the foreground, its output in log/NAME.out."""
        with (self._log / f"{name}.out").open("ab") as out:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=dict(env),
                start_new_session=True,
            )
        process = identify(child.pid)
        if process is None:
            raise BedError(f"{name} died at once; see {self._log / f'{name}.out'}")
        self._children[name] = child
        self._write(self.read() | {name: process})
        return process

    def running(self, name: str) -> bool:
        process = self.read().get(name)
        return process is not None and alive(process)

    def stop(self, name: str, *, sign: signal.Signals = signal.SIGTERM, wait_s: float = 10) -> None:
        """Stop a daemon, by SIGKILL when it has not ended after `wait_s`."""
        entries = self.read()
        process = entries.pop(name, None)
        if process is None:
            return
        kill(process, sign)
        end = time.monotonic() + wait_s
        while alive(process) and time.monotonic() < end:
            time.sleep(0.02)
        kill(process, signal.SIGKILL)
        child = self._children.pop(name, None)
        if child is not None:
            child.wait()
        self._write(entries)


def _children(pid: int) -> list[int]:
    try:
        return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def family(pid: int) -> list[Started]:
    """A process and all below it, the deepest first."""
    below = [member for child in _children(pid) for member in family(child)]
    own = identify(pid)
    return [*below, own] if own else below


def holders(root: Path, program: str) -> list[int]:
    """PIDs of `program`s that hold a file below `root` open: what outlives its daemon, and is ours."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _holds(entry, root, program)
    ]


def _holds(entry: Path, root: Path, program: str) -> bool:
    try:
        if not (entry / "comm").read_text("ascii", "replace").startswith(program):
            return False
        return any(str(link.readlink()).startswith(f"{root}/") for link in (entry / "fd").iterdir())
    except OSError:  # it ended while we looked, or belongs to another user
        return False
