"""An agent whose state is gone does not forget that its node was bad."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent.conftest import Bed
from tests.agent.fakes import NEXT_BOOT, XID_79, FakeKernel, settle, until

from komainu.agent.look_now import look_now
from komainu.core.decision import OrderKind
from komainu.core.verdict import Verdict


def _damaged(spool: Path) -> None:
    spool.write_bytes(b"not a database at all" * 400)


def _missing(spool: Path) -> None:
    spool.unlink()


def _empty(spool: Path) -> None:
    spool.write_bytes(b"")


LOSSES = pytest.mark.parametrize("loss", [_damaged, _missing, _empty])


async def _condemned_and_forgetful(bed: Bed, loss: object) -> None:
    """A node that was FAULT; its agent is stopped, its state gone, and its kernel log new."""
    await bed.started()
    bed.kernel.write(XID_79)
    await until(lambda: bed.verdict.verdict is Verdict.FAULT)
    await bed.stop()
    loss(bed.config.state_dir / "agent.db")  # type: ignore[operator]  # one of the three above
    bed.kernel = FakeKernel(bed.clock, NEXT_BOOT)


@LOSSES
async def test_a_fault_outlives_the_state_it_rested_on(bed: Bed, loss: object) -> None:
    await _condemned_and_forgetful(bed, loss)
    bed.server.down = True
    for _ in range(3):
        bed.start()
        await settle()
        assert bed.file().verdict is Verdict.FAULT
        assert bed.file().message.count("kept from before the agent's state was lost") == 1
        assert "GPU-XID-79 on gpu 0000:41:00" in bed.file().message
        await bed.stop()
        assert bed.file(kept=True).verdict is Verdict.FAULT


@LOSSES
async def test_the_servers_hold_takes_its_place(bed: Bed, loss: object) -> None:
    await _condemned_and_forgetful(bed, loss)
    bed.server.order(OrderKind.HOLD, reason="xid 79", decision="D-1")
    await bed.started()
    await until(lambda: "left-verdict" not in bed.verdict.checks)
    assert bed.word == "FAULT/settled"
    assert "held (D-1)" in bed.verdict.message


@LOSSES
async def test_a_server_that_holds_nothing_against_the_node_frees_it(
    bed: Bed, loss: object
) -> None:
    await _condemned_and_forgetful(bed, loss)
    await bed.started()
    await bed.becomes("UNKNOWN/settled" if loss is _damaged else "OK/settled")
    await bed.stop()
    bed.server.down = True
    bed.start()
    await settle()
    assert bed.verdict.verdict is not Verdict.FAULT


async def test_the_server_is_believed_only_once_the_node_has_looked_itself(bed: Bed) -> None:
    await _condemned_and_forgetful(bed, _missing)
    bed.kernel.promised = 7
    before = len(bed.server.batches)
    bed.start()
    await until(lambda: len(bed.server.batches) > before + 1)
    await settle()
    assert bed.word == "FAULT/settled"
    for _ in range(8):
        bed.kernel.write("eth0: link up")
    await bed.becomes("OK/settled")


@LOSSES
async def test_alone_a_person_says_when_it_is_over(bed: Bed, loss: object) -> None:
    bed.link = None
    await _condemned_and_forgetful(bed, loss)
    await bed.started()
    assert bed.word == "FAULT/settled"
    told = await look_now(bed.config, bed.kernel, bed.probe, bed.clock)
    assert told.verdict.verdict is Verdict.FAULT
    await bed.stop()
    bed.accept_state = True
    await bed.started()
    assert not bed.word.startswith("FAULT")
    await bed.stop()
    bed.accept_state = False
    await bed.started()
    assert not bed.word.startswith("FAULT")


async def test_a_fault_whose_state_is_there_is_not_kept_twice(bed: Bed) -> None:
    await bed.started()
    bed.kernel.write(XID_79)
    await until(lambda: bed.verdict.verdict is Verdict.FAULT)
    await bed.stop()
    await bed.started()
    assert "left-verdict" not in bed.verdict.checks
