"""What the server does, told in one line per event for somebody who watches a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from komainu.core.decision import Action, Result
from komainu.core.names import ClusterName
from komainu.core.record import DecisionRecord
from komainu.ports import Changed, Ledger

LOOK_S = 0.5
_DID = {
    Action.DRAIN: "takes no further job",
    Action.ADOPT: "stays out: the gate refused, Slurm drained it, and the drain is now ours",
    Action.RESUME: "back in service",
    Action.RELEASE_JOB: "released the job that the gate had sent back",
}
_SHOWN = frozenset({Result.DONE, Result.FOREIGN, Result.FAILED, Result.HELD, Result.ADVISED})


async def follow(ledger: Ledger, cluster: ClusterName, tell: Callable[[str], None]) -> None:
    """Tell each decision that was carried out or held back, and the guard's moods; until cancelled."""
    seq = await asyncio.to_thread(ledger.last_seq)
    told: set[tuple[str, Result]] = set()
    while True:
        await asyncio.sleep(LOOK_S)
        news = await asyncio.to_thread(_news, ledger, cluster, seq)
        for changed, record in news:
            seq = changed.seq
            for line in _lines(changed, record, told):
                tell(line)


def _news(
    ledger: Ledger, cluster: ClusterName, seq: int
) -> Sequence[tuple[Changed, DecisionRecord | None]]:
    news = ledger.changes(seq, cluster=cluster)
    return [
        (one, ledger.decision_record(one.ref) if one.what in {"decision", "outcome"} else None)
        for one in news
    ]


def _lines(
    changed: Changed, record: DecisionRecord | None, told: set[tuple[str, Result]]
) -> Iterator[str]:
    if changed.what == "guard":
        tripped = changed.ref == "tripped"
        yield (
            "the guard has tripped: no further node leaves service until there is room again"
            if tripped
            else "the guard has recovered"
        )
    if record is None:
        return
    decision = record.decision
    for outcome in record.outcomes:
        if outcome.result not in _SHOWN or (decision.id, outcome.result) in told:
            continue
        told.add((decision.id, outcome.result))
        what = _DID[decision.action] if outcome.result is Result.DONE else outcome.result.value
        yield f"{decision.node}: {what} ({decision.reason}) {decision.id}"
