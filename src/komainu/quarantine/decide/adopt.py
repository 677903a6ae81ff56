"""Our gate's refusals, and what Slurm made of them.

When our prolog refuses a job, Slurm drains the node itself ("Prolog error") and requeues the job
held. The drain becomes ours (ADOPT, counted by the guard), or is undone where the guard has no room
or nothing speaks against the node any more; the innocent job is released, once per refusal. A drain
a person made is left alone, and so is a "Prolog error" of which no refusal of ours is known: the
site's own prolog may have failed. An "Epilog error" is never ours: our epilog always succeeds.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from komainu.core.decision import Action, Decision
from komainu.core.gate import GateRecord, Why
from komainu.core.names import JobId, stable_id
from komainu.core.observation import Finding
from komainu.core.policy import Policy
from komainu.core.situation import NodeSituation, Refusal, Settled
from komainu.core.verdict import Severity
from komainu.quarantine.decide.nodes import Proposal, fatal_anyway
from komainu.quarantine.decide.words import reason_of

PATIENCE = timedelta(minutes=10)
"""How long after a refusal Slurm may still show its job held: it first ends the job on its other
nodes (KillWait, epilogs). A job started by srun is never held, it fails."""
_OF_A_FAULT = frozenset({Why.FAULT, Why.CONFIRM_TIMEOUT})


def behind_the_drain(situation: NodeSituation) -> Refusal | None:
    """The first refusal of ours that explains the drain Slurm shows; None when none does."""
    node = situation.scheduler
    if node is None or not node.gate_made:
        return None
    ours = (r for r in situation.refusals if r.record.where == "prolog")
    return min(ours, key=lambda r: (r.at, r.observation), default=None)


def adoption(
    situation: NodeSituation,
    refusal: Refusal,
    bad: tuple[Finding, ...],
    policy: Policy,
    now: datetime,
) -> Proposal | None:
    """The ADOPT of the drain Slurm made of `refusal`; None when nothing speaks against the node."""
    standing = situation.standing
    if not bad and standing is None and refusal.record.why in _OF_A_FAULT:
        return None
    decision = Decision(
        id=_id(situation, "adopt", refusal),
        cluster=situation.cluster,
        node=situation.node,
        action=Action.ADOPT,
        reason=_reason(bad, standing, refusal.record),
        by=standing.by if standing else "policy",
        at=now,
        policy_version=policy.version,
        findings=tuple(f.id for f in bad) or (standing.findings if standing else ()),
        job=JobId(refusal.record.job),
        expires=now + policy.expires_after,
        undo=Action.RESUME,
    )
    urgency = max((f.severity for f in bad), default=Severity.DEGRADED)
    exempt = standing is not None or (not policy.advise_only and fatal_anyway(bad, policy))
    return Proposal(decision=decision, urgency=urgency, exempt=exempt)


def undoing(
    situation: NodeSituation, refusal: Refusal, why: str, policy: Policy, now: datetime
) -> Decision:
    """The RESUME that takes back the drain Slurm made of `refusal`. It names the job: that is what
    lets acting clear a "Prolog error".
    """
    return Decision(
        id=_id(situation, "undo", refusal),
        cluster=situation.cluster,
        node=situation.node,
        action=Action.RESUME,
        reason=f"the drain Slurm made of our gate's refusal is undone: {why}",
        by="policy",
        at=now,
        policy_version=policy.version,
        job=JobId(refusal.record.job),
    )


def jobs_to_release(
    situation: NodeSituation, policy: Policy, now: datetime
) -> tuple[list[Decision], list[Settled]]:
    """RELEASE_JOB for every refusal whose job is held, and the refusals that are dealt with."""
    decisions: list[Decision] = []
    settled: list[Settled] = []
    for refusal in situation.refusals:
        if refusal.held and policy.release_held_jobs:
            decision = _release_job(situation, refusal, policy, now)
            decisions.append(decision)
            settled.append(_settled(situation, refusal, decision.id))
        elif refusal.held or _nothing_to_expect(situation, refusal, now):
            by = situation.standing.id if situation.standing else ""
            settled.append(_settled(situation, refusal, by))
    return decisions, settled


def _settled(situation: NodeSituation, refusal: Refusal, by: str) -> Settled:
    return Settled(
        key=situation.key,
        observation=refusal.observation,
        decision=by,
        job=JobId(refusal.record.job),
    )


def _release_job(
    situation: NodeSituation, refusal: Refusal, policy: Policy, now: datetime
) -> Decision:
    return Decision(
        id=_id(situation, "release-job", refusal),
        cluster=situation.cluster,
        node=situation.node,
        action=Action.RELEASE_JOB,
        reason=f"held because the gate refused it on {situation.node}; the job is innocent",
        by="policy",
        at=now,
        policy_version=policy.version,
        job=JobId(refusal.record.job),
    )


def _nothing_to_expect(situation: NodeSituation, refusal: Refusal, now: datetime) -> bool:
    """Whether the scheduler was seen long after the refusal, and its job was not held."""
    until = (refusal.received or refusal.at) + PATIENCE
    seen = situation.scheduler_at
    return seen is not None and until <= seen <= now


def _reason(bad: tuple[Finding, ...], standing: Decision | None, record: GateRecord) -> str:
    if bad:
        return reason_of(bad)
    if standing is not None:
        return standing.reason
    return f"the gate refused a job: verdict {record.why}"


def _id(situation: NodeSituation, what: str, refusal: Refusal) -> str:
    """One decision of a kind per refusal, however often it is thought about."""
    return stable_id(situation.cluster, situation.node, what, refusal.observation, prefix="D-")
