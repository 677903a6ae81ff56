"""Our gate's refusals, and what Slurm made of them.

When our prolog refuses a job, Slurm drains the node itself ("Prolog error") and requeues the job
held. The drain becomes ours (ADOPT, counted by the guard), or is undone where the guard has no room
or nothing speaks against the node any more. It is not undone while the node's own gate would refuse
the next job as well: that would be a circle, a job lost in each round. It stays Slurm's then, in the
open, until there is room or the gate has changed its mind. The innocent job is released, at most
once in ten minutes for each node, which is all that a node that makes refusals up can do. A drain
a person made is left alone, and so is a "Prolog error" of which no refusal of ours is known: the
site's own prolog may have failed. An "Epilog error" is never ours: our epilog always succeeds.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from komainu.core.decision import Action, Decision
from komainu.core.gate import UNSURE, GateRecord, Why
from komainu.core.names import JobId, stable_id
from komainu.core.observation import Finding
from komainu.core.policy import Policy
from komainu.core.situation import NodeSituation, Refusal, Settled
from komainu.core.verdict import Severity, Verdict
from komainu.quarantine.decide.nodes import LOOK_AGAIN, Proposal, fatal_anyway
from komainu.quarantine.decide.words import reason_of

PATIENCE = timedelta(minutes=10)
"""How long after a refusal Slurm may still show its job held: it first ends the job on its other
nodes (KillWait, epilogs). A job started by srun is never held, it fails."""
_OF_A_FAULT = frozenset({Why.FAULT, Why.CONFIRM_TIMEOUT})


def behind_the_drain(situation: NodeSituation) -> Refusal | None:
    """The refusal of ours that explains the drain Slurm shows: the one that came last, in their own
    order, since a clock may have been set back. None when none does. Older ones were of drains since
    lifted: a refused job that srun started leaves its refusal open for long.
    """
    node = situation.scheduler
    if node is None or not node.gate_made:
        return None
    ours = [r for r in situation.refusals if r.record.where == "prolog"]
    return ours[-1] if ours else None


def refuses_again(situation: NodeSituation, refusal: Refusal, policy: Policy) -> bool:
    """Whether the gate would refuse the next job too, by what the node has last said of itself."""
    closed = policy.for_node().stale == "closed"
    if refusal.record.why in UNSURE:
        return closed
    said = None if situation.verdict is None else situation.verdict.verdict
    return said is Verdict.FAULT or (said is Verdict.UNKNOWN and closed)


def adoption(
    situation: NodeSituation,
    refusal: Refusal,
    bad: tuple[Finding, ...],
    policy: Policy,
    now: datetime,
) -> Proposal | None:
    """The ADOPT of the drain Slurm made of `refusal`; None when nothing speaks against the node, or
    it is on its way back.
    """
    standing = situation.standing
    if not bad and standing is None:
        unseen = refusal.record.why in _OF_A_FAULT
        if situation.returning or (unseen and not _insists(situation, refusal, policy, now)):
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
    return Proposal(decision=decision, urgency=urgency, exempt=exempt, trips=bool(bad))


def _insists(situation: NodeSituation, refusal: Refusal, policy: Policy, now: datetime) -> bool:
    """Whether the node still refuses a minute later, for a fault of which the server knows nothing
    (it was restored from an older backup, say): by then every order has been taken. A refusal from
    the future says that our clock was set back, and is not waited for.
    """
    set_back = refusal.received is not None and now < refusal.received
    long_ago = set_back or _seen_after(situation, refusal, LOOK_AGAIN, now)
    return long_ago and refuses_again(situation, refusal, policy)


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
    situation: NodeSituation, policy: Policy, now: datetime, *, decided: bool
) -> tuple[list[Decision], list[Settled]]:
    """RELEASE_JOB for every refusal whose job is held, and the refusals that are dealt with: job and
    drain. `decided`: something about the node is decided in this very thought.
    """
    decisions: list[Decision] = []
    settled: list[Settled] = []
    freed = set(situation.released_jobs)
    by_node = decided or situation.standing is not None or situation.returning
    drained_by = None if by_node else behind_the_drain(situation)
    for refusal in situation.refusals:
        job, by = JobId(refusal.record.job), situation.standing.id if situation.standing else ""
        ours = refusal.held and policy.release_held_jobs
        if ours and job not in freed:
            freed.add(job)
            decision = _release_job(situation, refusal, policy, now)
            decisions.append(decision)
            over, by = by_node or _seen_after(situation, refusal, LOOK_AGAIN, now), decision.id
        else:
            over = not ours and (refusal.held or _seen_after(situation, refusal, PATIENCE, now))
        if over and refusal is not drained_by:
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


def _seen_after(situation: NodeSituation, refusal: Refusal, wait: timedelta, now: datetime) -> bool:
    """Whether the scheduler was seen so long after the refusal."""
    seen = situation.scheduler_at
    return seen is not None and (refusal.received or refusal.at) + wait <= seen <= now


def _reason(bad: tuple[Finding, ...], standing: Decision | None, record: GateRecord) -> str:
    if bad:
        return reason_of(bad)
    if standing is not None:
        return standing.reason
    if record.why in _OF_A_FAULT:
        return f"the gate refuses jobs for what the server does not know: verdict {record.why}"
    return f"the gate refused a job: verdict {record.why}"


def _id(situation: NodeSituation, what: str, refusal: Refusal) -> str:
    """One decision of a kind per refusal, however often it is thought about."""
    return stable_id(situation.cluster, situation.node, what, refusal.observation, prefix="D-")
