"""Shared by the tests of this room: the files of lines, and observations made of texts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from komainu.core.names import NodeKey, cluster_name, node_name
from komainu.core.observation import Finding, Observation
from komainu.health.collect import observation_of
from komainu.health.detect import Memory, detect
from komainu.health.detect.pasted import Writer, unwrap
from komainu.ports import KernelRecord

KERNEL = Path(__file__).resolve().parent.parent / "data" / "kernel"
KEY = NodeKey(cluster_name("alpha"), node_name("gpu-017"))
BOOT = "7d3b4f4e-6f0c-4f0e-9f57-0c1d2e3f4a5b"
START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def labelled() -> list[tuple[str, str, str]]:
    rows = (KERNEL / "kernel_lines.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [(line, component, code) for line, component, code, *_ in (r.split("\t") for r in rows)]


def benign() -> list[str]:
    return (KERNEL / "benign_lines.txt").read_text(encoding="utf-8").splitlines()


def xid(code: int, rest: str = "", gpu: str = "0000:41:00", pid: int | None = None) -> str:
    who = f"pid={pid}, name=python3, " if pid is not None else ""
    return f"NVRM: Xid (PCI:{gpu}): {code}, {who}{rest}"


def seen(*timed: tuple[float, str], boot: str = BOOT) -> list[Observation]:
    """Observations of texts at so many seconds after START; the sequence number follows the order."""
    out = []
    for at, text in timed:
        seq = int(at * 1_000_000)
        record = KernelRecord(seq=seq, mono_us=seq, facility=0, level=3, text=text)
        moment = datetime.fromtimestamp(START.timestamp() + at, UTC)
        observation = observation_of(record, key=KEY, boot_id=boot, at=moment)
        if observation is not None:
            out.append(observation)
    return out


def found(*timed: tuple[float, str], memory: Memory | None = None) -> list[Finding]:
    return detect(memory or Memory(), seen(*timed))[1]


def by_code(findings: Sequence[Finding]) -> dict[str, Finding]:
    return {finding.code: finding for finding in findings}


def kernel_line_texts() -> list[str]:
    """The labelled lines as the kernel gives them: without prefix, only the kernel's own."""
    unwrapped = (unwrap(line) for line, _, _ in labelled())
    return [p.text for p in unwrapped if p is not None and p.writer is Writer.KERNEL]
