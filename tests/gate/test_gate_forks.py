"""The proof that the normal path starts no process: the kernel is asked, through ptrace."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess

import pytest
from tests.gate.gatebed import DEPLOY, Bed, replace, stale_line, verdict_line

TRACEME, CONT, SETOPTIONS = 0, 7, 0x4200
FORK, VFORK, CLONE, EXEC = 1, 2, 3, 4  # PTRACE_EVENT_*; the option of each is 1 << its number
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def ptrace(request: int, pid: int, value: int = 0) -> None:
    if LIBC.ptrace(request, pid, None, value) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def started_by(command: list[str], env: dict[str, str]) -> list[int]:
    """Every fork, clone and exec of the command itself, after its own start."""
    traced = subprocess.Popen(
        command,
        env=env,
        preexec_fn=lambda: ptrace(TRACEME, 0),  # noqa: PLW1509 (there are no threads here)
        stderr=subprocess.DEVNULL,
    )
    events: list[int] = []
    os.waitpid(traced.pid, 0)  # stopped at its own exec
    ptrace(SETOPTIONS, traced.pid, sum(1 << event for event in (FORK, VFORK, CLONE, EXEC)))
    pass_on = 0
    while True:
        ptrace(CONT, traced.pid, pass_on)
        _, status = os.waitpid(traced.pid, 0)
        if not os.WIFSTOPPED(status):
            traced.returncode = os.waitstatus_to_exitcode(status)
            return events
        pass_on = os.WSTOPSIG(status)
        if pass_on == signal.SIGTRAP:
            pass_on = 0
            events.append(status >> 16)
            # A child starts out stopped and traced too; it only ever is `sleep` here.
            if events[-1] in {FORK, VFORK, CLONE}:
                release_child()


def release_child() -> None:
    child, _ = os.waitpid(-1, getattr(os, "__WALL", 0x40000000))
    LIBC.ptrace(17, child, None, None)  # PTRACE_DETACH


LINES = {
    "ok": verdict_line(),
    "fault": verdict_line("FAULT"),
    "unknown": verdict_line("UNKNOWN"),
    "skipped": verdict_line("SKIPPED"),
    "stale": stale_line(),
    "checking": verdict_line("OK", "checking"),
    "garbled": "x\n",
    "missing": None,
}


@pytest.mark.parametrize("state", LINES)
@pytest.mark.parametrize("script", ["prolog", "epilog"])
def test_no_process_is_started(bed: Bed, state: str, script: str) -> None:
    if (line := LINES[state]) is not None:
        replace(bed.verdict, line)
    env = {**bed.environment(), "PATH": "/nonexistent"}
    assert started_by([*bed.shell, str(DEPLOY / script)], env) == []
    assert len(bed.records()) == 1


def test_the_proof_would_notice(bed: Bed) -> None:
    replace(bed.verdict, verdict_line("FAULT", "confirming", wait_s=1))
    events = started_by([*bed.shell, str(DEPLOY / "prolog")], bed.environment())
    if not bed.shell[0].endswith("busybox"):  # its sleep is its own
        assert set(events) & {FORK, VFORK, CLONE}
    assert started_by(["/bin/sh", "-c", "/bin/true; /bin/true"], {}) != []
