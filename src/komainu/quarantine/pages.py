"""Pages of what was decided, and the two things a person can ask for: hold and release.

A dry run thinks the same thought and prints the same text; it only remembers and does nothing.
"""

from __future__ import annotations

import asyncio

import msgspec

from komainu.core.decision import Decision, Outcome
from komainu.core.errors import InputError, NotAllowed
from komainu.core.names import ClusterName, NodeKey, cluster_name, node_name
from komainu.core.node import SchedulerNode
from komainu.core.situation import ClusterSituation, NodeSituation, Thought
from komainu.core.views import Answer, Ask, DecisionPage, decision_view, guard_view
from komainu.ports import Asked, Desk, Page
from komainu.quarantine import decide

MOST = 500
ASKED_AGAIN_S = 0.1
"""A person's release is answered when it is done, at most a second after `confirm_s`: so long it may
wait for its node."""
_ask = msgspec.json.Decoder(Ask).decode


class _Considered(msgspec.Struct, frozen=True, kw_only=True):
    """A thought and what it was made from."""

    situation: NodeSituation
    whole: ClusterSituation
    thought: Thought


async def hold(desk: Desk, asked: Asked) -> Answer:
    key, ask = await asyncio.to_thread(_asked, desk, asked)
    if ask.force and asked.person.role != "admin":
        raise NotAllowed(
            f"forcing a hold beyond the guard's room is for admins; {asked.person.name} is "
            f"{asked.person.role}. Ask without force, or ask an admin."
        )
    if key.cluster in desk.watched_only:
        raise _watched_only(key)
    shown = await desk.scheduler_node(key)

    def think() -> _Considered:
        situation, whole = _now(desk, key, shown)
        now, policy = desk.now(), desk.policy_of(key.cluster)
        thought = decide.hold(
            situation, whole, policy, asked.person.name, ask.reason, now, force=ask.force
        )
        return _remembered(desk, situation, whole, thought, dry_run=ask.dry_run)

    made: _Considered = await desk.aside(key.cluster, think)
    return await _answer(desk, made, hold_text(made.situation, made.thought), dry_run=ask.dry_run)


async def release(desk: Desk, asked: Asked) -> Answer:
    key, ask = await asyncio.to_thread(_asked, desk, asked)
    shown = await desk.scheduler_node(key)

    def think() -> _Considered:
        situation, whole = _now(desk, key, shown)
        now, policy = desk.now(), desk.policy_of(key.cluster)
        thought = decide.release(situation, policy, asked.person.name, ask.reason, now)
        return _remembered(desk, situation, whole, thought, dry_run=ask.dry_run)

    made: _Considered = await desk.aside(key.cluster, think)
    return await _answer(
        desk, made, release_text(made.situation, made.thought), dry_run=ask.dry_run
    )


def _watched_only(key: NodeKey) -> InputError:
    return InputError(
        f"{key} is not held: cluster {key.cluster} is watched only, so nothing is drained and no gate "
        f'refuses there. Found scheduler = "none" for it in komainu.toml, expected "slurm". Drain the '
        "node with the scheduler's own tools, or let Komainu act there and restart the server."
    )


def _asked(desk: Desk, asked: Asked) -> tuple[NodeKey, Ask]:
    cluster = cluster_name(asked.path["cluster"])
    key = NodeKey(cluster, node_name(asked.path["node"]))
    if cluster not in desk.clusters or desk.ledger.node_record(key) is None:
        raise KeyError(f"node {key}")
    try:
        ask = _ask(asked.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"the request cannot be read: {error}") from error
    return key, ask


def _now(
    desk: Desk, key: NodeKey, shown: SchedulerNode | None
) -> tuple[NodeSituation, ClusterSituation]:
    """Where things stand, with the scheduler's view of this moment."""
    now = desk.now()
    situation = desk.ledger.situation(key, now)
    window_s = desk.policy_of(key.cluster).guard.window_s
    whole = desk.ledger.cluster_situation(key.cluster, now, window_s)
    return msgspec.structs.replace(situation, scheduler=shown, scheduler_at=now), whole


def _remembered(
    desk: Desk,
    situation: NodeSituation,
    whole: ClusterSituation,
    thought: Thought,
    *,
    dry_run: bool,
) -> _Considered:
    """Remember the thought, unless it is a dry run or the guard said no to the person asking."""
    thought = msgspec.structs.replace(thought, cluster=situation.cluster)
    if not dry_run and thought.decisions:
        desk.ledger.remember(thought, desk.now())
    return _Considered(situation=situation, whole=whole, thought=thought)


async def _answer(desk: Desk, made: _Considered, text: str, *, dry_run: bool) -> Answer:
    decision = _decision(made.thought)
    outcome: Outcome | None = None
    whole, cluster = made.whole, made.situation.cluster
    if not dry_run and decision is not None and made.thought.decisions:
        desk.told({order.key for order in made.thought.orders})
        outcome, whole = await _carried_out(desk, cluster, decision.id)
    jobs = made.situation.scheduler.jobs if made.situation.scheduler else ()
    return Answer(
        text=text,
        decision=decision,
        outcome=outcome,
        jobs=list(jobs),
        guard=guard_view(whole, desk.policy_of(cluster).guard),
        dry_run=dry_run,
        limit=made.thought.held[0].limit if made.thought.held else "",
    )


async def _carried_out(
    desk: Desk, cluster: ClusterName, decision: str
) -> tuple[Outcome | None, ClusterSituation]:
    """Do it and say what came of it. A release waits (bounded) until its node has taken it."""
    for _ in range(int((desk.policy_of(cluster).confirm_s + 1) / ASKED_AGAIN_S)):
        await desk.carry_out(cluster)
        outcome, whole = await desk.aside(cluster, lambda: _after(desk, cluster, decision))
        if outcome is not None or cluster in desk.watched_only:
            break
        await asyncio.sleep(ASKED_AGAIN_S)
    return outcome, whole


def _after(
    desk: Desk, cluster: ClusterName, decision: str
) -> tuple[Outcome | None, ClusterSituation]:
    record = desk.ledger.decision_record(decision)
    came = record.outcomes[-1] if record and record.outcomes else None
    window_s = desk.policy_of(cluster).guard.window_s
    whole = desk.ledger.cluster_situation(cluster, desk.now(), window_s)
    return came, whole


def _decision(thought: Thought) -> Decision | None:
    if thought.decisions:
        return thought.decisions[0]
    return thought.held[0].decision if thought.held else None


# ── the words ────────────────────────────────────────────────────────────────────────────────────


def hold_text(situation: NodeSituation, thought: Thought) -> str:
    """What a hold does here; the same words before and after."""
    key, scheduler = situation.key, situation.scheduler
    if thought.held:
        return (
            f"{key} is not held: the guard has no room for it ({thought.held[0].limit}). Release a "
            "node, wait for the window to pass, or let an admin force it."
        )
    if not thought.decisions:
        standing = situation.standing
        why = f" by {standing.id}: {standing.reason}" if standing else ""
        return f"{key} is already held{why}. Nothing is changed."
    text = f"Hold {key}: its agent is told to let no new job in, and {_drain_words(scheduler)}."
    jobs = scheduler.jobs if scheduler else ()
    if jobs:
        text += f" {_count(len(jobs), 'running job')} may finish: {', '.join(jobs[:10])}"
        text += f" and {len(jobs) - 10} more." if len(jobs) > 10 else "."
    return text


def _drain_words(scheduler: SchedulerNode | None) -> str:
    if scheduler is None:
        return "the scheduler, which does not show this node now, is told to drain it"
    if scheduler.out and not scheduler.ours:
        return f"the scheduler's own {_owner(scheduler)} is left as it is"
    return "the scheduler is told to drain it"


def release_text(situation: NodeSituation, thought: Thought) -> str:
    """What a release does here; the same words before and after."""
    key, scheduler = situation.key, situation.scheduler
    lifted = "our hold is lifted" if situation.standing else "nothing of ours holds it"
    closed = _count(len(thought.released), "open finding")
    text = f"{key} is released: {lifted}, {closed} closed."
    decision = _decision(thought)
    if scheduler is None:
        return f"{text} The scheduler does not show this node now."
    if not scheduler.out:
        return f"{text} The scheduler has it in service."
    if scheduler.ours or (scheduler.gate_made and decision is not None and decision.job):
        return f"{text} The scheduler resumes it."
    return (
        f"{text} It stays out of service: the scheduler's {_owner(scheduler)} is not ours, and we "
        "leave it. Whoever set it has to clear it."
    )


def _owner(scheduler: SchedulerNode) -> str:
    what = "drain" if scheduler.drained else f"state {scheduler.state}"
    by = f" by {scheduler.reason_by}" if scheduler.reason_by else ""
    return f"{what}{by} ({scheduler.reason or 'no reason given'})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# ── the record ───────────────────────────────────────────────────────────────────────────────────


def decisions(desk: Desk, asked: Asked) -> DecisionPage:
    """Newest first."""
    limit = asked.number("limit", default=100, most=MOST)
    found = desk.ledger.decision_records(
        asked.cluster(), asked.node(), before=asked.before(), limit=limit + 1
    )
    shown, more = found[:limit], len(found) > limit
    return DecisionPage(
        decisions=[decision_view(record) for record in shown],
        more=more,
        before=str(shown[-1].number) if more else None,
    )


PAGES = (
    Page(method="GET", path="/decisions", answer=decisions),
    Page(method="POST", path="/nodes/{cluster}/{node}/hold", answer=hold),
    Page(method="POST", path="/nodes/{cluster}/{node}/release", answer=release),
)
