"""What users of other systems complained about in public, each as a test of ours.

The numbers are theirs: NVIDIA/NVSentinel, NVIDIA/k8s-device-plugin, Azure/azurehpc, leptonai/gpud.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec
from tests.quarantine.cases import (
    CLUSTER,
    MINUTE,
    N1,
    NOW,
    decision,
    finding,
    guarded,
    outcome,
    shows,
    situation,
    whole,
)
from tests.quarantine.model_slurm import ModelSlurm

from komainu.core.decision import Action, OrderKind, Result
from komainu.core.policy import Policy
from komainu.core.verdict import FaultClass, Severity
from komainu.quarantine.act import act
from komainu.quarantine.decide import release, think
from komainu.quarantine.decide.nodes import BY_HAND

POLICY = Policy()


async def test_a_node_does_not_stay_cordoned_after_recovery_nvsentinel_458() -> None:
    slurm = ModelSlurm(CLUSTER, [N1])
    drained = think([situation(N1, finding())], whole(), POLICY, NOW).decisions
    await act(drained, slurm, NOW)
    slurm.broken = True
    back = release(
        situation(N1, finding(), standing=drained[0]), POLICY, "ann", "replaced", NOW
    ).decisions
    assert [o.result for o in await act(back, slurm, NOW)] == [Result.FAILED]
    slurm.broken = False
    long_after = NOW + timedelta(days=3)
    assert back[0].expires is None
    assert [o.result for o in await act(back, slurm, long_after)] == [Result.DONE]
    assert not slurm.shown[N1].drained


async def test_a_humans_cordon_is_not_undone_nvsentinel_1854_1872() -> None:
    slurm = ModelSlurm(CLUSTER, [N1])
    slurm.drain_by("person", N1, "maintenance until Friday")
    back = release(situation(N1, finding()), POLICY, "ann", "GPU is fine", NOW)
    assert [o.result for o in await act(back.decisions, slurm, NOW)] == [Result.FOREIGN]
    assert slurm.shown[N1].reason == "maintenance until Friday"


def test_a_manual_uncordon_is_respected_nvsentinel_141() -> None:
    standing = decision(findings=("F-n1-1",))
    by_hand = situation(
        N1,
        finding(1),
        finding(2, at=NOW),
        finding(3, at=NOW + 9 * MINUTE),
        standing=standing,
        standing_outcome=outcome(Result.DONE),
        last_decision="D-1",
        scheduler=shows(),
        scheduler_at=NOW + 9 * MINUTE,
    )
    thought = think([by_hand], whole(N1), POLICY, NOW + 9 * MINUTE)
    (back,) = thought.decisions
    assert (back.action, back.by) == (Action.RESUME, BY_HAND)
    assert thought.released == ("F-n1-1", "F-n1-2")
    assert [one.order.kind for one in thought.orders] == [OrderKind.RELEASE]
    fresh = situation(N1, finding(3, at=NOW + 9 * MINUTE), last_decision=back.id)
    again = think([fresh], whole(), POLICY, NOW + 9 * MINUTE).decisions
    assert [d.findings for d in again] == [("F-n1-3",)]


def test_the_breaker_lets_recoveries_through_nvsentinel_450() -> None:
    shut = whole("n1", "n2", total=2, tripped_at=NOW)
    by_hand = situation(
        N1,
        standing=decision(),
        standing_outcome=outcome(Result.DONE),
        scheduler=shows(),
        scheduler_at=NOW + MINUTE,
    )
    thought = think([by_hand], shut, POLICY, NOW + MINUTE)
    assert [d.action for d in thought.decisions] == [Action.RESUME]


def test_the_breaker_resets_itself_and_replays_nothing_old_nvsentinel_450_1852() -> None:
    policy = guarded(1)
    first = think(
        [situation(N1, finding(), policy_ordered=policy.version)], whole("n2"), policy, NOW
    )
    held = first.held[0].decision
    days_later = NOW + timedelta(days=4)
    repaired = situation(N1, held_back=held, policy_ordered=policy.version, advise_only=True)
    thought = think([repaired], whole(tripped_at=NOW), policy, days_later)
    assert thought.tripped is False
    assert thought.decisions == ()
    assert thought.dropped == (held.id,)


def test_an_unknown_code_never_drains() -> None:
    unknown = msgspec.structs.replace(
        finding(code="GPU-XID-9999", severity=Severity.WATCH), fault_class=FaultClass.UNKNOWN
    )
    assert think([situation(N1, unknown)], whole(), POLICY, NOW).decisions == ()


def test_a_storm_of_xid_45_is_one_decision_with_the_fault_it_follows() -> None:
    cause = finding(0)
    storm = [
        finding(i, code="GPU-XID-45", severity=Severity.INFO, cause=cause.id) for i in range(1, 500)
    ]
    (drain,) = think([situation(N1, cause, *storm)], whole(), POLICY, NOW).decisions
    assert drain.reason == "GPU-XID-79 on gpu 0000:41:00: GPU has fallen off the bus"
    assert drain.findings == (cause.id,)


def test_a_storm_of_xid_45_alone_drains_nothing() -> None:
    storm = [finding(i, code="GPU-XID-45", severity=Severity.INFO) for i in range(500)]
    assert think([situation(N1, *storm)], whole(), POLICY, NOW).decisions == ()


def test_the_same_old_lines_do_not_drain_again_after_a_release_azurehpc_648() -> None:
    """The findings a release closes are no longer open; reading the log again makes the same ids."""
    back = release(situation(N1, finding(), standing=decision()), POLICY, "ann", "fixed", NOW)
    assert back.released == (finding().id,)
    assert think([situation(N1)], whole(), POLICY, NOW).decisions == ()


def test_severity_is_the_sites_to_argue_gpud_391() -> None:
    policy = Policy(severity={"GPU-XID-63": "watch"})
    remap = situation(
        N1, finding(code="GPU-XID-63", severity=Severity.DEGRADED), policy_ordered=policy.version
    )
    assert think([remap], whole(), policy, NOW).decisions == ()
