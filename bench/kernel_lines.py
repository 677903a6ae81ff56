"""How fast kernel lines become findings, and how many of them are read right, beside five other tools.

mixed_per_s      90 % distinct benign lines, 10 % lines of kernel_lines.tsv: observation filter, parser,
                 catalogue, correlation, Findings built. One core, one thread.
mixed_novel_per_s  the same, but every meaningful line differs from all others (process ids, addresses), so
                 that no reading is ever remembered from before.
xid_per_s        only Xid lines, Findings built; xid_novel_per_s likewise with every line different.

Meaningful records carry times 1.5 s apart, so that no two are folded into one finding (folding is cheaper):
as many findings come out as lines that are findings go in, and the bench checks it.
Peers are their published regular expressions, re-implemented here; they classify only and build nothing.
"""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.report import Report, options, show
from komainu.agent.follow import AT_ONCE
from komainu.core.names import NodeKey, cluster_name, node_name
from komainu.health.collect import observations_of
from komainu.health.detect import Memory, detect
from komainu.health.detect.pasted import Writer, unwrap
from komainu.health.detect.reading import read_pasted, shipped
from komainu.ports import KernelRecord

DATA = Path(__file__).resolve().parent.parent / "tests" / "data" / "kernel"
KEY = NodeKey(cluster_name("bench"), node_name("node1"))
BOOT_ID = "00000000-0000-4000-8000-000000000000"
BOOTED = datetime(2026, 11, 30, tzinfo=UTC)
APART_US = 1_500_000
NOW = BOOTED + timedelta(days=30)


def benign_lines() -> list[str]:
    return (DATA / "benign_lines.txt").read_text(encoding="utf-8").splitlines()


def labelled_lines() -> list[tuple[str, str, str]]:
    """(line, component, code) of kernel_lines.tsv."""
    rows = (DATA / "kernel_lines.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [(line, component, code) for line, component, code, *_ in (r.split("\t") for r in rows)]


def kernel_texts() -> list[str]:
    """The meaningful lines as /dev/kmsg gives them: without time stamps, only the kernel's own."""
    unwrapped = (unwrap(line) for line, _, _ in labelled_lines())
    return [p.text for p in unwrapped if p is not None and p.writer is Writer.KERNEL]


def novel(text: str, number: int) -> str:
    """The same line about another process or address, so that its text was never seen before."""
    changed = re.sub(r"pid=\d+", f"pid={number}", text)
    return changed if changed != text else f"{text} #{number}"


def mixed(count: int, *, fresh: bool) -> list[KernelRecord]:
    """Nine benign lines, then a meaningful one, and so on."""
    benign, meaningful = benign_lines(), kernel_texts()
    texts: list[str] = []
    for number in range(count // 10):
        start = number * 9 % len(benign)
        texts += (benign + benign)[start : start + 9]
        text = meaningful[number % len(meaningful)]
        texts.append(novel(text, number) if fresh else text)
    return records(texts, APART_US // 10)


def xids(count: int, *, fresh: bool) -> list[KernelRecord]:
    lines = [text for text in kernel_texts() if text.startswith("NVRM: Xid")]
    texts = (lines[n % len(lines)] for n in range(count))
    return records([novel(t, n) for n, t in enumerate(texts)] if fresh else list(texts), APART_US)


def records(texts: Sequence[str], apart_us: int) -> list[KernelRecord]:
    return [KernelRecord(n, n * apart_us, 0, 4, text) for n, text in enumerate(texts)]


def findings_of(lines: Sequence[KernelRecord]) -> int:
    """As the agent goes (agent/follow.py): batch by batch, with the same calls; how many findings came out."""
    memory, found = Memory(), 0
    for start in range(0, len(lines), AT_ONCE):
        seen = observations_of(
            lines[start : start + AT_ONCE], key=KEY, boot_id=BOOT_ID, booted=BOOTED, now=NOW
        )
        memory, findings = detect(memory, seen)
        found += len(findings)
    return found


def expected_findings(lines: Iterable[KernelRecord]) -> int:
    read = shipped()
    return sum(1 for r in lines if (reading := read(r.text)) is not None and reading.finding)


def rate(run: Callable[[], object], count: int, seconds: float) -> float:
    """Best of repeated runs for about `seconds`: other work on the machine only ever slows a run."""
    best, until = 0.0, time.perf_counter() + seconds
    gc.collect()
    gc.freeze()
    while time.perf_counter() < until:
        start = time.perf_counter()
        run()
        best = max(best, count / (time.perf_counter() - start))
    gc.unfreeze()
    return best


# ── peers: their regular expressions, as published ─────────────────────────────────────────────────

_GPUD = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:]+)\): (\d+),")
_GCM = re.compile(r"NVRM: Xid.*?: (\d+)")
_IMBUE = re.compile(r"NVRM: Xid \(PCI:([0-9a-f:]+)\): (\d+)")
_AZURE = re.compile(r"NVRM: Xid.*: (\d+),")


def _guard(line: str) -> str | None:
    """slurm-gpu-node-guard cuts at the last `):`."""
    if "Xid" not in line:
        return None
    found = re.match(r"\s*(\d+)", line.rpartition("):")[2])
    return found[1] if found else None


def _by(pattern: re.Pattern[str], group: int) -> Callable[[str], str | None]:
    def code(line: str) -> str | None:
        found = pattern.search(line)
        return found[group] if found else None

    return code


PEERS: dict[str, Callable[[str], str | None]] = {
    "gpud": _by(_GPUD, 2),
    "gcm": _by(_GCM, 1),
    "imbue": _by(_IMBUE, 2),
    "azure-nhc": _by(_AZURE, 1),
    "slurm-gpu-node-guard": _guard,
}


def peer_figures(lines: list[str], seconds: float) -> dict[str, dict[str, float]]:
    labelled = labelled_lines()
    xid_rows = [(line, code) for line, _, code in labelled if "NVRM: Xid (" in line]
    figures = {}
    for name, code_of in PEERS.items():
        right = sum(code_of(line) == code for line, _, code in labelled)
        right_xid = sum(code_of(line) == code for line, code in xid_rows)

        def run(code_of: Callable[[str], str | None] = code_of) -> None:
            for line in lines:
                code_of(line)

        figures[name] = {
            "lines_per_s": rate(run, len(lines), seconds),
            "right_share": right / len(labelled),
            "right_share_of_xids": right_xid / len(xid_rows),
        }
    return figures


def main() -> None:
    chosen = options(__doc__)
    # The stream stays short in both modes: a run of 50 ms can fall between other work on the machine.
    count, seconds = 50_000, 3.0 if chosen.quick else 20.0
    figures: dict[str, float] = {}
    built: list[str] = []
    streams = {
        "mixed_per_s": mixed(count, fresh=False),
        "mixed_novel_per_s": mixed(count, fresh=True),
        "xid_per_s": xids(count // 5, fresh=False),
        "xid_novel_per_s": xids(count // 5, fresh=True),
    }
    for name, stream in streams.items():
        found, expected = findings_of(stream), expected_findings(stream)
        if found != expected:
            raise SystemExit(
                f"{name}: {expected} findings expected, {found} built: not measuring that"
            )
        built.append(f"{name}: {len(stream)} lines, {found} findings built")
        figures[name] = rate(lambda stream=stream: findings_of(stream), len(stream), seconds)  # type: ignore[misc]  # default binds the loop variable
    labelled = labelled_lines()
    right = [
        (r.line.component, r.line.code) == (component, code) if (r := read_pasted(line)) else False
        for line, component, code in labelled
    ]
    figures["right_share"] = sum(right) / len(labelled)
    lines = [record.text for record in streams["mixed_per_s"][:20_000]]
    peers = peer_figures(lines, seconds / 6)
    show(Report(figures=figures, peers=peers, n=count, notes=tuple(built)), chosen)


if __name__ == "__main__":
    main()
