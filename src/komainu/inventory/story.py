"""A node's history as lines, newest first, told from what is kept of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from komainu.core.decision import Order
from komainu.core.observation import Observation, ObservationKind, Scalar
from komainu.core.record import DecisionRecord, GateSeen, History
from komainu.core.views import StoryLine
from komainu.inventory.model import finding_words

MOST = 400
"""Characters of one line: a scheduler's reason is somebody else's text of any length."""
_Data = Mapping[str, Scalar]


def story(history: History, limit: int) -> list[StoryLine]:
    """At most `limit` lines, newest first."""
    lines = sorted(_lines(history), key=lambda line: line.at, reverse=True)
    return lines[:limit]


def _lines(history: History) -> Iterator[StoryLine]:
    for found in history.findings:
        finding = found.finding
        text = finding_words(finding)
        yield StoryLine(at=finding.at, what="finding", text=text, ref=finding.id)
    for decided in history.decisions:
        yield from _decided(decided)
    for order in history.orders:
        yield StoryLine(at=order.at, what="order", text=_ordered(order), ref=str(order.number))
    for seen in history.gate:
        yield StoryLine(at=seen.at, what="gate", text=_gate(seen), ref=seen.observation)
    for spoken in history.spoken:
        what = "scheduler" if spoken.kind is ObservationKind.SCHEDULER else "agent"
        yield StoryLine(at=spoken.at, what=what, text=_spoken(spoken), ref=spoken.id)


def _decided(record: DecisionRecord) -> Iterator[StoryLine]:
    decision = record.decision
    held = "" if record.allowed else f" (held back: {record.limit})"
    text = f"{decision.action} decided by {decision.by}: {decision.reason}{held}"
    yield StoryLine(at=decision.at, what="decision", text=text, ref=decision.id)
    for outcome in record.outcomes:
        detail = f": {outcome.detail}" if outcome.detail else ""
        text = f"{decision.action} {outcome.result}{detail}"
        yield StoryLine(at=outcome.at, what="outcome", text=text, ref=decision.id)


def _ordered(order: Order) -> str:
    value = f" {order.value}" if order.value in {"on", "off"} else ""
    reason = f": {order.reason}" if order.reason else ""
    return f"told the node (order {order.number}): {order.kind}{value}{reason}"


def _gate(seen: GateSeen) -> str:
    record = seen.record
    settled = f", settled by {seen.settled_by}" if seen.settled_by else ""
    if record.where == "epilog":
        return f"job {record.job} of {record.user} ended"
    did = "let in" if record.answer == "admit" else "refused"
    unsure = ", unsure whether the node is well" if record.unsure else ""
    return f"the gate {did} job {record.job} of {record.user} ({record.why}{unsure}){settled}"


def _spoken(spoken: Observation) -> str:
    told = _TOLD.get(spoken.kind)
    return (told(spoken.data) if told else f"{spoken.kind}: {_listed(spoken.data)}")[:MOST]


def _agent(data: _Data) -> str:
    event = str(data.get("event", ""))
    rest = _listed({name: value for name, value in data.items() if name != "event"})
    return f"the agent {_EVENTS.get(event, f'says {event}')}" + (f" ({rest})" if rest else "")


def _gap(data: _Data) -> str:
    records = f"{data.get('lost')} kernel records ({data.get('first_seq')}-{data.get('last_seq')})"
    return f"{records} were overwritten before they could be read"


def _source(data: _Data) -> str:
    which = "the previous boot's kernel log" if data.get("boot") == "previous" else "the kernel log"
    if data.get("readable"):
        return f"{which} can be read again"
    return f"{which} could not be read: {data.get('why') or 'no reason was given'}"


def _scheduler(data: _Data) -> str:
    """`IDLE+DRAIN, set by root: komainu:D-…: why`."""
    state = "+".join(str(data[part]) for part in ("state", "flags") if data.get(part))
    by = f", set by {data['reason_by']}" if data.get("reason_by") and data.get("reason") else ""
    return f"{state}{by}" + (f": {data['reason']}" if data.get("reason") else "")


def _listed(data: _Data) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {value}"
        for name, value in data.items()
        if value not in ("", None)
    )


_EVENTS = {
    "started": "started",
    "stopping": "is stopping",
    "findings_not_kept": "sent more findings than are kept of one node; the newest were only counted",
    "enrolled_again": "enrolled again: its token from before is void",
    "spool_refused": "set aside what the server refuses to take",
    "spool_dropped": "dropped kernel lines that no finding rests on: its spool was full",
}
_TOLD: Mapping[ObservationKind, Callable[[_Data], str]] = {
    ObservationKind.AGENT: _agent,
    ObservationKind.KERNEL_GAP: _gap,
    ObservationKind.KERNEL_SOURCE: _source,
    ObservationKind.SCHEDULER: _scheduler,
}
