"""Views as text for a terminal at 3 a.m.: what, since when, why, who, what next.

Evidence, reasons and job names may hold whatever a tenant typed, so every word from outside passes
`shown`: no control character, no escape sequence, no bidirectional trick reaches the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from komainu.core.node import SchedulerNode
from komainu.core.observation import Finding
from komainu.core.verdict import Verdict
from komainu.core.views import (
    Answer,
    ClusterView,
    DecisionView,
    FindingView,
    GuardView,
    NodeRow,
    NodeView,
    Standing,
)

MEANINGS = {
    Standing.HEALTHY: "seen, and nothing speaks against it",
    Standing.WATCHED: "open findings, none of which keeps jobs off",
    Standing.FAULTY: "condemned, and still in service",
    Standing.QUARANTINED: "out by our doing",
    Standing.FOREIGN: "out by someone else's doing; left alone",
    Standing.UNSEEN: "cannot tell: no fresh word from its agent",
}
_WIDE = 160
EVIDENCE_MAX = 6
"""Evidence lines shown per cause; --json has all."""


def shown(text: str, width: int = _WIDE) -> str:
    """Text from outside, safe for a terminal: what cannot be printed is spelt out, and it is cut."""
    safe = "".join(c if c.isprintable() else _spelt(c) for c in text)
    return safe if len(safe) <= width else safe[: width - 1] + "…"


def _spelt(char: str) -> str:
    number = ord(char)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def when(at: datetime | None, now: datetime | None = None) -> str:
    """`2026-11-30 10:02:12 UTC (3 h ago)`; a time that is not known says so."""
    if at is None:
        return "never"
    stamp = f"{at:%Y-%m-%d %H:%M:%S} UTC"
    return stamp if now is None else f"{stamp} ({_ago(now - at)})"


def _ago(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    if seconds < 0:
        return "in the future"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Aligned columns, two blanks apart, the last one free."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head) - 1)]
    return [
        "  ".join([*(cell.ljust(w) for cell, w in zip(line[:-1], widths, strict=True)), line[-1]])
        for line in lines
    ]


# ── why ──────────────────────────────────────────────────────────────────────────────────────────


def why(view: NodeView, now: datetime, runbook_of: Callable[[str], str]) -> list[str]:
    """A node's whole case on one screen. `runbook_of`: a code's page below docs/."""
    row = view.row
    word = row.standing.value.upper()
    lines = [f"{shown(row.cluster)}/{shown(row.node)}: {word}, {MEANINGS[row.standing]}"]
    if row.since is not None:
        lines.append(f"  since {when(row.since, now)}")
    if row.why:
        lines.append(f"  {shown(row.why)}")
    open_findings = _worst_first([f for f in view.findings if f.open])
    lines += ["", "WHY", *(_findings(open_findings, now) or ["  no open findings"])]
    lines += ["", "DECIDED", *_decided(view)]
    lines += ["", "SCHEDULER", *_scheduler(view.scheduler, row.scheduler)]
    lines += ["", "NODE", *_agent(view, now)]
    return [*lines, "", "NEXT", *_next(view, open_findings, runbook_of)]


def _worst_first(findings: Sequence[FindingView]) -> list[FindingView]:
    return sorted(findings, key=lambda v: (-v.finding.severity, v.finding.at, v.finding.id))


def _findings(findings: Sequence[FindingView], now: datetime) -> list[str]:
    """Each cause with its parts folded in: their codes named, their evidence among its own."""
    causes = {view.finding.id for view in findings if view.finding.cause is None}
    parts = [v.finding for v in findings if v.finding.cause in causes]
    lines: list[str] = []
    for view in findings:
        if view.finding.cause not in causes:
            lines += _case(view, [p for p in parts if p.cause == view.finding.id], now)
    return lines


def _case(view: FindingView, parts: Sequence[Finding], now: datetime) -> list[str]:
    f = view.finding
    also = f" (with {', '.join(shown(part.code) for part in parts)})" if parts else ""
    facts = [f"first seen {when(f.at, now)}", f"id {shown(f.id)}"]
    facts += [f"job {shown(f.job)}"] if f.job else []
    facts += [f"NVIDIA advises {shown(f.vendor_action)}"] if f.vendor_action else []
    facts += [f"driver says {f.driver_action} (Xid 154)"] if f.driver_action is not None else []
    evidence = sorted((e for one in (f, *parts) for e in one.evidence), key=lambda e: e.at)
    lines = [
        f"  {view.severity:<8} {shown(f.code)} on {shown(str(f.component))}: {shown(f.summary)}{also}",
        f"           {'; '.join(facts)}",
        *(f"           | {e.at:%H:%M:%S} {shown(e.text)}" for e in evidence[:EVIDENCE_MAX]),
    ]
    if len(evidence) > EVIDENCE_MAX:
        more = len(evidence) - EVIDENCE_MAX
        lines.append(f"           | … and {more} more (--json shows all)")
    return lines


def _decided(view: NodeView) -> list[str]:
    if view.standing_decision is not None:
        return _decision(view.standing_decision)
    held = next((d for d in view.decisions if d.limit), None)
    return _decision(held) if held else ["  nothing stands"]


def _decision(view: DecisionView) -> list[str]:
    d = view.decision
    lines = [
        f"  {shown(d.id)}  {d.action.value} by {shown(d.by)} at {when(d.at)}: {view.state}",
        f"           {shown(d.reason)}",
    ]
    if view.limit:
        lines.append(f"           held back: {shown(view.limit)}")
    lines += [
        f"           {o.at:%H:%M:%S} {o.result.value}: {shown(o.detail, 500) or 'no detail'}"
        for o in view.outcomes[-3:]
    ]
    return lines


def _scheduler(node: SchedulerNode | None, word: str) -> list[str]:
    if node is None:
        return ["  does not know this node, or has not been read yet"]
    lines = [f"  {shown(word) or '+'.join([node.state, *sorted(node.flags)])}"]
    if node.reason:
        whose = "ours" if node.ours else "Slurm's" if node.gate_made else "not ours, left alone"
        by = f" by {shown(node.reason_by)}" if node.reason_by else ""
        at = f" at {when(node.reason_at)}" if node.reason_at else ""
        lines.append(f"  reason ({whose}{by}{at}): {shown(node.reason)}")
    if node.jobs:
        named = " ".join(shown(job) for job in node.jobs[:10])
        lines.append(
            f"  {_count(len(node.jobs), 'running job')}: {named}; a drain lets them finish"
        )
    return lines


def _agent(view: NodeView, now: datetime) -> list[str]:
    lines = [f"  agent {shown(view.agent_version) or '?'} last heard {when(view.row.seen, now)}"]
    if view.verdict is None:
        return [*lines, "  it has never said a verdict"]
    v = view.verdict
    advise = ", advise only (the gate refuses nothing)" if v.advise_only else ""
    said = f": {shown(v.message)}" if v.message else ""
    lines.append(f"  its verdict is {v.verdict.value} ({v.phase.value}){advise}{said}")
    blind = [f"{shown(name)} {said.value}" for name, said in sorted(v.checks.items())]
    unseen = [text for text in blind if not text.endswith(f" {Verdict.OK.value}")]
    return [*lines, f"  not seen healthy: {', '.join(unseen)}"] if unseen else lines


def _next(
    view: NodeView, findings: Sequence[FindingView], runbook_of: Callable[[str], str]
) -> list[str]:
    row = view.row
    name = f"{shown(row.cluster)}/{shown(row.node)}"
    pages: dict[str, list[str]] = {}
    for code in dict.fromkeys(view.finding.code for view in findings):
        pages.setdefault(shown(runbook_of(code)), []).append(shown(code))
    lines = [
        f"  read docs/{page} ({', '.join(codes[:6])})" for page, codes in list(pages.items())[:3]
    ]
    match row.standing:
        case Standing.QUARANTINED:
            lines.append(f'  when it is repaired: komainu release {name} --because "what was done"')
        case Standing.FAULTY:
            lines.append(f'  to keep jobs off now: komainu hold {name} --because "why"')
            lines.append(f"  {guard_line(view.guard)}")
        case Standing.WATCHED:
            lines.append(f'  to close the findings: komainu release {name} --because "why"')
        case Standing.FOREIGN:
            lines.append("  ask whoever drained it; Komainu will not touch their drain")
        case Standing.UNSEEN:
            lines.append("  on the node: systemctl status komainu-agent; komainu check")
        case Standing.HEALTHY:
            lines.append("  nothing to do")
    return lines


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def guards(views: Sequence[ClusterView]) -> list[str]:
    """How much room each cluster's guard has left, and what it keeps in service."""
    lines: list[str] = []
    for view in sorted(views, key=lambda one: one.cluster):
        lines.append(f"{shown(view.cluster)}: {guard_line(view.guard)}")
        if view.held_back:
            more = len(view.held_back) - 10
            named = " ".join(shown(node) for node in view.held_back[:10])
            said = f"{named} and {more} more" if more > 0 else named
            lines.append(
                f"  held back, and in service: {said}; why: komainu why {shown(view.cluster)}/NODE"
            )
    return lines


def guard_line(guard: GuardView) -> str:
    tripped = f"; TRIPPED since {when(guard.tripped_at)}" if guard.tripped_at else ""
    return (
        f"guard: room for {guard.room} more; {guard.out} of {guard.limit} nodes out, "
        f"{guard.removed_in_window} of {guard.max_in_window} removals in {guard.window_s} s{tripped}"
    )


# ── lists and answers ────────────────────────────────────────────────────────────────────────────


def nodes(rows: Sequence[NodeRow]) -> list[str]:
    cells = (
        (
            shown(f"{r.cluster}/{r.node}", 60),
            r.standing.value,
            r.verdict.value,
            shown(r.scheduler, 40) or "-",
            str(r.jobs),
            "-" if r.since is None else f"{r.since:%m-%d %H:%M}",
            shown(r.why, 100),
        )
        for r in rows
    )
    head = ("NODE", "STANDING", "VERDICT", "SCHEDULER", "JOBS", "SINCE", "WHY")
    counts = {s: sum(r.standing is s for r in rows) for s in Standing}
    summed = ", ".join(f"{n} {s.value}" for s, n in counts.items() if n)
    return [*table(head, cells), f"{len(rows)} nodes: {summed or 'none'}"]


def findings(views: Sequence[FindingView]) -> list[str]:
    cells = (
        (
            when(v.finding.at),
            shown(f"{v.finding.cluster}/{v.finding.node}", 60),
            v.severity,
            shown(v.finding.code, 40),
            shown(str(v.finding.component), 40),
            str(v.count),
            "open" if v.open else f"closed by {shown(v.released_by or '?', 40)}",
            shown(v.finding.summary, 100),
        )
        for v in views
    )
    head = ("FIRST SEEN", "NODE", "SEVERITY", "CODE", "COMPONENT", "COUNT", "STATE", "SUMMARY")
    return table(head, cells)


def decisions(views: Sequence[DecisionView]) -> list[str]:
    cells = (
        (
            when(v.decision.at),
            shown(f"{v.decision.cluster}/{v.decision.node}", 60),
            v.decision.action.value,
            shown(v.state, 20),
            shown(v.decision.by, 40),
            shown(v.decision.id, 40),
            shown(v.decision.reason, 100) + (f" [{shown(v.limit, 100)}]" if v.limit else ""),
        )
        for v in views
    )
    return table(("AT", "NODE", "ACTION", "STATE", "BY", "ID", "REASON"), cells)


def answer(said: Answer) -> list[str]:
    """The same text for the dry run and the act; the last line tells them apart."""
    lines = [shown(line, 400) for line in said.text.splitlines()]
    if said.decision is not None:
        lines.append(f"reason: {shown(said.decision.reason)}")
    if said.jobs:
        named = " ".join(shown(job, 40) for job in said.jobs[:10])
        lines.append(f"{_count(len(said.jobs), 'job')} running there now: {named}")
    lines.append(guard_line(said.guard))
    if said.dry_run:
        return [*lines, "dry run: nothing was decided or done"]
    if said.outcome is not None:
        o = said.outcome
        lines.append(f"outcome of {shown(o.decision)}: {o.result.value}; {shown(o.detail, 800)}")
    return lines
