"""Acting: read, act, read again; only on what is ours; safe to repeat."""

from __future__ import annotations

import msgspec
import pytest
from tests.quarantine.cases import CLUSTER, N1, N2, NOW, decision
from tests.quarantine.model_slurm import ModelSlurm

from komainu.core.decision import Action, Decision, Outcome, Result
from komainu.core.errors import SchedulerError
from komainu.core.names import JobId, NodeName
from komainu.core.node import HELD_BY_PROLOG, SchedulerJob
from komainu.quarantine.act import act

JOB = JobId("7")


@pytest.fixture
def slurm() -> ModelSlurm:
    return ModelSlurm(CLUSTER, [NodeName(f"n{i}") for i in range(1, 21)])


async def one(slurm: ModelSlurm, asked: Decision) -> Outcome:
    (said,) = await act([asked], slurm, NOW)
    return said


async def test_one_drain_is_three_calls(slurm: ModelSlurm) -> None:
    said = await one(slurm, decision())
    assert said.result is Result.DONE
    assert slurm.shown[N1].reason == "komainu:D-1: GPU-XID-79 on gpu 0000:41:00"
    assert slurm.calls == 3


async def test_doing_it_again_finds_it_done(slurm: ModelSlurm) -> None:
    await one(slurm, decision())
    slurm.calls = 0
    assert (await one(slurm, decision())).result is Result.ALREADY
    assert slurm.calls == 1


async def test_a_persons_drain_is_neither_overwritten_nor_cleared(slurm: ModelSlurm) -> None:
    slurm.drain_by("person", N1, "swapping a DIMM")
    for action in (Action.DRAIN, Action.RESUME, Action.ADOPT):
        said = await one(slurm, decision(action=action, job=JOB))
        assert said.result is Result.FOREIGN
        assert said.detail == "found IDLE+DRAIN with reason 'swapping a DIMM'"
    assert slurm.shown[N1].reason == "swapping a DIMM"


async def test_a_prolog_error_is_touched_only_where_the_decision_says_it_is_ours(
    slurm: ModelSlurm,
) -> None:
    slurm.drain_by("site", N1, "Prolog error")
    assert (await one(slurm, decision())).result is Result.FOREIGN
    assert (await one(slurm, decision(action=Action.RESUME))).result is Result.FOREIGN
    slurm.drain_by("gate", N1, "Prolog error")
    said = await one(slurm, decision(action=Action.ADOPT, job=JOB))
    assert said.result is Result.DONE
    assert slurm.shown[N1].reason.startswith("komainu:D-1:")
    slurm.drain_by("gate", N2, "Prolog error")
    back = await one(slurm, decision("D-2", N2, Action.RESUME, job=JOB))
    assert back.result is Result.DONE
    assert not slurm.shown[N2].drained


@pytest.mark.parametrize("action", [Action.RESUME, Action.ADOPT])
async def test_an_epilog_error_is_never_ours_since_our_epilog_does_not_fail(
    slurm: ModelSlurm, action: Action
) -> None:
    slurm.drain_by("site", N1, "Epilog error")
    assert (await one(slurm, decision(action=action, job=JOB))).result is Result.FOREIGN
    assert slurm.shown[N1].reason == "Epilog error"


async def test_a_drain_that_is_gone_is_not_adopted(slurm: ModelSlurm) -> None:
    said = await one(slurm, decision(action=Action.ADOPT, job=JOB))
    assert said.result is Result.FOREIGN
    assert not slurm.shown[N1].drained


async def test_resuming_what_is_in_service_is_already_done(slurm: ModelSlurm) -> None:
    assert (await one(slurm, decision(action=Action.RESUME))).result is Result.ALREADY


class ComesBackDown(ModelSlurm):
    """Takes the drain away, and the node is out all the same."""

    reason = ""

    def undrain(self, node: NodeName) -> None:
        super().undrain(node)
        self.shown[node] = msgspec.structs.replace(
            self.shown[node], state="DOWN", reason=self.reason
        )


async def test_a_node_that_is_out_after_its_resume_is_not_called_done() -> None:
    slurm = ComesBackDown(CLUSTER, [N1])
    slurm.reason = "Not responding"
    await one(slurm, decision())
    said = await one(slurm, decision("D-2", action=Action.RESUME))
    assert said.result is Result.FOREIGN
    assert said.detail == "found DOWN with reason 'Not responding'"
    assert (await one(slurm, decision("D-2", action=Action.RESUME))).result is Result.FOREIGN


async def test_a_node_that_stays_out_under_our_reason_is_tried_again() -> None:
    slurm = ComesBackDown(CLUSTER, [N1])
    slurm.reason = "komainu:D-1: GPU-XID-79"
    await one(slurm, decision())
    said = await one(slurm, decision("D-2", action=Action.RESUME))
    assert said.result is Result.FAILED
    assert said.detail == "still DOWN after resume, expected it in service"


async def test_a_node_that_is_down_for_slurms_own_reasons_is_left_to_slurm(
    slurm: ModelSlurm,
) -> None:
    down = msgspec.structs.replace(slurm.shown[N1], state="DOWN", reason="Not responding")
    slurm.shown[N1] = down
    assert (await one(slurm, decision())).result is Result.FOREIGN
    assert slurm.shown[N1] == down


async def test_a_note_on_a_node_in_service_gives_way_and_is_kept_in_the_outcome(
    slurm: ModelSlurm,
) -> None:
    slurm.shown[N1] = msgspec.structs.replace(slurm.shown[N1], reason="watch the fan")
    said = await one(slurm, decision())
    assert said.result is Result.DONE
    assert "'watch the fan'" in said.detail


async def test_a_node_the_scheduler_does_not_know_is_a_failure(slurm: ModelSlurm) -> None:
    said = await one(slurm, decision(node="n99"))
    assert (said.result, said.detail) == (Result.FAILED, "the scheduler does not know this node")


async def test_a_silent_scheduler_fails_everything_and_raises_nothing(slurm: ModelSlurm) -> None:
    slurm.broken = True
    asked = [decision(), decision("D-2", N2, Action.RELEASE_JOB, job=JOB)]
    said = await act(asked, slurm, NOW)
    assert [o.result for o in said] == [Result.FAILED, Result.FAILED]
    assert all("did not answer" in o.detail for o in said)


class BreaksAfter(ModelSlurm):
    """Answers so many calls, then no more."""

    calls_left = 0

    def _answer(self) -> None:
        if not self.calls_left:
            raise SchedulerError("slurmctld did not answer within 10 s")
        self.calls_left -= 1
        super()._answer()


async def test_what_was_done_and_not_read_back_is_tried_again_and_found_done() -> None:
    slurm = BreaksAfter(CLUSTER, [N1])
    slurm.calls_left = 2
    said = await one(slurm, decision())
    assert said.result is Result.FAILED
    assert slurm.shown[N1].drained
    slurm.calls_left = 9
    assert (await one(slurm, decision())).result is Result.ALREADY


async def test_many_nodes_are_read_in_one_call_and_resumed_in_one(slurm: ModelSlurm) -> None:
    asked = [decision(f"D-{i}", f"n{i}") for i in range(1, 21)]
    said = await act(asked, slurm, NOW)
    assert [o.decision for o in said] == [d.id for d in asked]
    assert {o.result for o in said} == {Result.DONE}
    assert slurm.calls == 1 + 20 + 1
    slurm.calls = 0
    back = [decision(f"R-{i}", f"n{i}", Action.RESUME) for i in range(1, 21)]
    assert {o.result for o in await act(back, slurm, NOW)} == {Result.DONE}
    assert slurm.calls == 3


async def test_the_newer_decision_overtakes_the_older(slurm: ModelSlurm) -> None:
    said = await act([decision(), decision("D-2", action=Action.RESUME)], slurm, NOW)
    assert [o.result for o in said] == [Result.EXPIRED, Result.ALREADY]
    assert said[0].detail == "overtaken by D-2"
    assert not slurm.shown[N1].drained


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────────


def free(id_: str = "D-7", node: str = N1, job: JobId = JOB) -> Decision:
    return decision(id_, node, Action.RELEASE_JOB, job=job)


async def test_a_job_held_for_our_refusal_is_released_once(slurm: ModelSlurm) -> None:
    slurm.prolog_failed(N1, JOB, requeued=True)
    said = await act([free(), free("D-8", N2)], slurm, NOW)
    assert [o.result for o in said] == [Result.DONE, Result.ALREADY]
    assert slurm.releases == [JOB]
    assert (await one(slurm, free())).result is Result.ALREADY
    assert slurm.releases == [JOB]


async def test_a_job_a_person_holds_stays_held(slurm: ModelSlurm) -> None:
    slurm.queue[JOB] = SchedulerJob(id=JOB, state="PENDING", held=True, reason="JobHeldUser")
    said = await one(slurm, free())
    assert said.result is Result.ALREADY
    assert slurm.queue[JOB].held


async def test_a_job_that_is_gone_is_no_error(slurm: ModelSlurm) -> None:
    assert (await one(slurm, free(job=JobId("99")))).result is Result.ALREADY


class Deaf(ModelSlurm):
    """Says yes to a release and does nothing."""

    async def release_job(self, job: JobId) -> None:
        self._answer()


async def test_a_job_still_held_after_its_release_is_tried_again() -> None:
    slurm = Deaf(CLUSTER, [N1])
    slurm.prolog_failed(N1, JOB, requeued=True)
    said = await one(slurm, free())
    assert (said.result, said.detail) == (Result.FAILED, "job 7 is still held after release")
    assert slurm.queue[JOB].reason == HELD_BY_PROLOG


async def test_the_node_comes_before_its_job() -> None:
    """Else the job may start again where it was refused."""
    order: list[str] = []

    class Written(ModelSlurm):
        async def drain(self, nodes: object, reason: str) -> None:
            order.append("drain")
            await super().drain(nodes, reason)  # type: ignore[arg-type]

        async def release_job(self, job: JobId) -> None:
            order.append("release")
            await super().release_job(job)

    slurm = Written(CLUSTER, [N1])
    slurm.prolog_failed(N1, JOB, requeued=True)
    await act([free(), decision(action=Action.ADOPT, job=JOB)], slurm, NOW)
    assert order == ["drain", "release"]
