"""The agent from end to end, with a make-believe kernel log, server, clock and GPUs."""

from __future__ import annotations

import asyncio
import sqlite3

import msgspec
import pytest
from tests.agent.conftest import Bed
from tests.agent.fakes import BOOT, NEXT_BOOT, XID_79, FakeKernel, settle, until

from komainu.core.decision import OrderKind
from komainu.core.errors import StorageError
from komainu.core.node import NodePolicy, Phase
from komainu.core.observation import Observation, ObservationKind
from komainu.core.verdict import Severity, Verdict


async def test_a_node_that_was_looked_at_is_ok(bed: Bed) -> None:
    bed.kernel.write("eth0: link up")
    await bed.started()
    await bed.becomes("OK/settled")
    assert bed.file().verdict is Verdict.OK
    assert bed.file().boot_id == BOOT
    assert set(bed.verdict.checks) == {"kernel-log", "gpus", "state-dir", "clock"}


async def test_nothing_looked_at_yet_is_unknown(bed: Bed) -> None:
    bed.kernel.unreadable = "no permission; needs CAP_SYSLOG"
    await bed.started()
    await bed.becomes("UNKNOWN/settled")
    assert "CAP_SYSLOG" in bed.verdict.message
    bed.kernel.unreadable = ""
    await bed.clock.forward(6)
    await bed.becomes("OK/settled")
    await until(lambda: len(_seen(bed, ObservationKind.KERNEL_SOURCE)) == 2)


async def test_an_xid_79_condemns_at_once_and_waits_for_the_guard(bed: Bed) -> None:
    await bed.started()
    await bed.becomes("OK/settled")
    bed.kernel.write(XID_79)
    await bed.becomes("FAULT/confirming")
    assert bed.file().phase is Phase.CONFIRMING
    await until(lambda: bed.server.codes == ["GPU-XID-79"], "shipping")
    assert bed.server.verdicts[-1].verdict is Verdict.FAULT
    bed.server.order(OrderKind.HOLD, reason="xid 79", decision="D-1")
    await bed.becomes("FAULT/settled")
    assert "D-1" in bed.file().message
    await until((bed.config.state_dir / "verdict").exists, "copying")
    await until(lambda: bed.file(kept=True).phase is Phase.SETTLED, "copying")


async def test_without_an_answer_the_node_settles_by_itself(bed: Bed) -> None:
    await bed.started()
    bed.server.down = True
    bed.kernel.write(XID_79)
    await bed.becomes("FAULT/confirming")
    await bed.clock.forward(4)
    assert bed.word == "FAULT/settled"


async def test_without_a_server_it_settles_at_once(bed: Bed) -> None:
    bed.link = None
    await bed.started()
    bed.kernel.write(XID_79)
    await bed.becomes("FAULT/settled")


async def test_a_server_that_has_forgotten_its_findings_is_told_them_again(bed: Bed) -> None:
    await bed.started()
    bed.kernel.write(XID_79)
    await until(lambda: bed.server.codes == ["GPU-XID-79"])
    bed.server.findings.clear()
    await bed.clock.forward(bed.config.heartbeat_s)
    await until(lambda: bed.server.codes == ["GPU-XID-79"], "telling again")
    await bed.clock.forward(bed.config.heartbeat_s)
    assert len(bed.server.sendings) == 2


async def test_what_a_node_found_alone_is_told_to_its_first_server(bed: Bed) -> None:
    server, bed.link = bed.link, None
    await bed.started()
    bed.kernel.write(XID_79)
    await bed.becomes("FAULT/settled")
    await bed.stop()
    bed.link = server
    await bed.started()
    await until(lambda: bed.server.codes == ["GPU-XID-79"], "telling")


async def test_findings_a_server_will_not_know_are_told_once_a_heartbeat(bed: Bed) -> None:
    await bed.started()
    bed.kernel.write(XID_79)
    await until(lambda: bed.server.sendings)
    bed.server.deaf = True
    before = len(bed.server.sendings)
    for _ in range(3):
        await bed.clock.forward(bed.config.heartbeat_s)
    assert 1 <= len(bed.server.sendings) - before <= 3


async def test_a_line_written_by_a_user_changes_nothing(bed: Bed) -> None:
    await bed.started()
    bed.kernel.write(XID_79, facility=1)
    last = bed.kernel.write("eth0: link up")
    await until(lambda: bed.node.cursor.seq == last)
    assert bed.word == "OK/settled"
    assert bed.server.findings == {}


async def test_a_fault_survives_restart_and_is_told_before_anything_is_read(bed: Bed) -> None:
    await bed.started()
    bed.kernel.write(XID_79)
    await until(lambda: bed.server.codes == ["GPU-XID-79"])
    await bed.kill()
    (bed.config.run_dir / "verdict").unlink()
    bed.kernel.unreadable = "gone"
    bed.start()
    await settle()
    assert bed.verdict.verdict is Verdict.FAULT
    assert bed.file().verdict is Verdict.FAULT


async def test_a_fault_survives_a_reboot(bed: Bed) -> None:
    await bed.started()
    bed.kernel.write(XID_79)
    await bed.becomes("FAULT/confirming")
    await bed.stop()
    bed.kernel = FakeKernel(bed.clock, NEXT_BOOT)
    await bed.started()
    assert bed.verdict.verdict is Verdict.FAULT
    assert bed.file().boot_id == NEXT_BOOT
    await bed.stop()
    assert bed.server.codes == ["GPU-XID-79"]


async def test_an_event_while_the_agent_was_down_is_found_and_asks_the_guard_first(
    bed: Bed,
) -> None:
    bed.kernel.write("eth0: link up")
    await bed.started()
    await bed.stop()
    bed.kernel.write(XID_79)
    await bed.clock.forward(3600)
    bed.start()
    await bed.becomes("FAULT/confirming")
    await bed.stop()
    assert bed.server.codes == ["GPU-XID-79"]


async def test_the_same_lines_are_not_acted_on_twice(bed: Bed) -> None:
    bed.kernel.write(XID_79)
    for _ in range(4):
        await bed.started()
        await until(lambda: bed.server.codes == ["GPU-XID-79"])
        await bed.stop()
    assert len(bed.server.sendings) == 1


async def test_lost_records_are_counted_and_told(bed: Bed) -> None:
    bed.kernel.write("a")
    await bed.started()
    bed.kernel.overwrite(41)
    bed.kernel.write("b")
    await until(lambda: _seen(bed, ObservationKind.KERNEL_GAP))
    assert _seen(bed, ObservationKind.KERNEL_GAP)[0].data == {
        "lost": 41, "boot_id": BOOT, "first_seq": 1, "last_seq": 41,
    }  # fmt: skip


async def test_only_what_the_last_boot_said_after_the_cursor_is_new(bed: Bed) -> None:
    await bed.started()
    bed.kernel.write(XID_79)
    await until(lambda: bed.server.codes == ["GPU-XID-79"])
    await bed.stop()
    bed.server.order(OrderKind.RELEASE, findings=tuple(bed.server.findings))
    bed.kernel = FakeKernel(bed.clock, NEXT_BOOT)
    other = XID_79.replace("41:00", "42:00")
    bed.kernel.previous = [f"[ 1000.000000] {XID_79}", f"[ 1005.250000] {other}"]
    for _ in range(2):
        await bed.started()
        await until(lambda: len(bed.server.findings) == 2)
        await bed.stop()
    assert {f.component.id for f in bed.server.findings.values()} == {"0000:41:00", "0000:42:00"}
    assert len(bed.server.sendings) == 2


async def test_the_last_boots_lines_keep_their_distance_in_time(bed: Bed) -> None:
    """Rules such as "63 within 2 s of 48" go by it."""
    await bed.started()
    await bed.stop()
    bed.kernel = FakeKernel(bed.clock, NEXT_BOOT)
    other = XID_79.replace("41:00", "42:00")
    unstamped = XID_79.replace("41:00", "43:00")
    bed.kernel.previous = [f"[ 9000.000000] {XID_79}", f"[ 9005.250000] {other}", unstamped]
    await bed.started()
    await until(lambda: len(bed.server.findings) == 3)
    at = {f.component.id: f.at for f in bed.server.findings.values()}
    assert (at["0000:42:00"] - at["0000:41:00"]).total_seconds() == 5.25
    assert at["0000:43:00"] == at["0000:42:00"]


async def test_a_last_boot_that_cannot_be_read_is_unknown_and_tried_again(bed: Bed) -> None:
    await bed.started()
    await bed.stop()
    bed.kernel = FakeKernel(bed.clock, NEXT_BOOT)
    bed.kernel.previous_unreadable = "the journal is damaged"
    await bed.started()
    assert bed.verdict.checks["previous-boot"] is Verdict.UNKNOWN
    await until(lambda: "try 1 of 10: the journal is damaged" in bed.verdict.message)
    bed.kernel.previous_unreadable, bed.kernel.previous = "", [f"[ 9000.000000] {XID_79}"]
    await bed.clock.forward(60)
    await until(lambda: bed.server.codes == ["GPU-XID-79"])
    assert "previous-boot" not in bed.verdict.checks


async def test_after_ten_tries_a_finding_says_so_until_a_person_releases_it(bed: Bed) -> None:
    await bed.started()
    await bed.stop()
    bed.kernel = FakeKernel(bed.clock, NEXT_BOOT)
    bed.kernel.previous_unreadable = "the journal is damaged"
    await bed.started()
    for _ in range(9):
        assert bed.server.codes == []
        await bed.clock.forward(60)
    await until(lambda: bed.server.codes == ["HOST-KMSG-PREVIOUS-BOOT"])
    await bed.becomes("UNKNOWN/settled")
    assert "previous-boot" not in bed.verdict.checks
    await bed.stop()
    await bed.started()
    assert bed.word == "UNKNOWN/settled"
    bed.server.order(OrderKind.RELEASE, findings=tuple(bed.server.findings))
    await bed.becomes("OK/settled")
    assert len(bed.server.sendings) == 1


async def test_a_hold_refuses_and_a_release_by_id_admits_again(bed: Bed) -> None:
    await bed.started()
    bed.kernel.write(XID_79)
    await until(lambda: bed.server.findings)
    bed.server.order(OrderKind.HOLD, reason="by hand", decision="D-1")
    await bed.becomes("FAULT/settled")
    bed.server.order(OrderKind.RELEASE, findings=tuple(bed.server.findings))
    await bed.becomes("OK/settled")
    await bed.stop()
    await bed.started()
    assert bed.word == "OK/settled"
    assert bed.server.batches[-1].orders_seen == 2


async def test_a_hold_survives_restart_without_the_server(bed: Bed) -> None:
    await bed.started()
    bed.server.order(OrderKind.HOLD, reason="by hand", decision="D-1")
    await bed.becomes("FAULT/settled")
    await bed.kill()
    bed.server.down = True
    bed.start()
    await settle()
    assert bed.word == "FAULT/settled"


async def test_when_the_guard_has_tripped_faults_are_told_and_not_refused(bed: Bed) -> None:
    await bed.started()
    bed.server.order(OrderKind.ADVISE_ONLY, value="on", codes=("GPU-XID-95",))
    await until(lambda: bed.verdict.advise_only)
    bed.kernel.write(XID_79)
    await until(lambda: bed.verdict.codes == ("GPU-XID-79",))
    assert bed.word == "OK/settled"
    assert "advise-only" in bed.file().message
    bed.server.order(OrderKind.ADVISE_ONLY, value="off")
    await bed.becomes("FAULT/confirming")
    await bed.clock.forward(4)
    assert bed.word == "FAULT/settled"


async def test_a_policy_order_changes_what_condemns_and_survives(bed: Bed) -> None:
    await bed.started()
    policy = NodePolicy(version="v2", severity={"GPU-XID-79": Severity.WATCH}, ttl_s=9)
    bed.server.order(OrderKind.POLICY, value=msgspec.json.encode(policy).decode())
    await until(lambda: bed.file().ttl_s == 9)
    bed.kernel.write(XID_79)
    await until(lambda: bed.server.codes == ["GPU-XID-79"])
    assert bed.word == "OK/settled"
    await bed.stop()
    await bed.started()
    assert bed.server.batches[-1].policy_seen == "v2"


async def test_a_policy_nobody_can_read_leaves_the_old_one(bed: Bed) -> None:
    await bed.started()
    bed.server.order(OrderKind.POLICY, value="{not json")
    bed.server.order(OrderKind.HOLD, reason="after it")
    await bed.becomes("FAULT/settled")


async def test_a_gpu_that_vanishes_is_a_finding_until_it_is_back(bed: Bed) -> None:
    await bed.started()
    await bed.becomes("OK/settled")
    gone = bed.probe.lose(3)
    await bed.clock.forward(16)
    await until(lambda: bed.server.codes == ["GPU-MISSING"])
    assert bed.verdict.verdict is Verdict.FAULT
    assert next(iter(bed.server.findings.values())).component.id == gone.pci
    bed.server.order(OrderKind.RELEASE, findings=tuple(bed.server.findings))
    await until(lambda: len(bed.server.findings) == 2)  # at once, not at the next look around
    assert bed.verdict.verdict is Verdict.FAULT
    bed.probe.find(gone)
    bed.server.order(OrderKind.RELEASE, findings=tuple(bed.server.findings))
    await bed.becomes("OK/settled")
    await bed.stop()
    await bed.started()
    await bed.becomes("OK/settled")
    assert len(bed.server.findings) == 2


async def test_a_gpu_taken_out_for_good_is_accepted_when_a_person_says_so(bed: Bed) -> None:
    await bed.started()
    await bed.becomes("OK/settled")
    bed.probe.lose(3)
    await bed.clock.forward(16)
    await until(lambda: bed.server.codes == ["GPU-MISSING"])
    await bed.stop()
    bed.accept_gpus = True
    await bed.started()
    bed.server.order(OrderKind.RELEASE, findings=tuple(bed.server.findings))
    await bed.becomes("OK/settled")
    assert len(bed.server.findings) == 1


async def test_no_gpus_told_is_unknown_not_ok(bed: Bed) -> None:
    bed.probe.seen = None
    await bed.started()
    await bed.becomes("UNKNOWN/settled")


async def test_findings_wait_in_the_spool_while_the_server_is_away(bed: Bed) -> None:
    bed.server.down = True
    await bed.started()
    bed.kernel.write(XID_79)
    await bed.becomes("FAULT/confirming")
    await bed.stop()
    bed.server.down = False
    await bed.started()
    await until(lambda: bed.server.codes == ["GPU-XID-79"])


async def test_one_thing_the_server_refuses_keeps_nothing_else_from_it(bed: Bed) -> None:
    """A batch that was refused was once sent again for ever, and all behind it waited."""
    await bed.started()
    bed.server.down = True
    bed.kernel.write(XID_79)
    for number in range(20):
        bed.kernel.write(f"NVRM: Xid (PCI:0000:{number:02x}:00): 13, pid=1, name=a, x")
    await until(lambda: len(bed.node.spool.parcel(500).findings) == 21)
    poison = bed.node.spool.parcel(500).findings[7].id
    bed.server.refuses = lambda held: poison in held
    bed.server.down = False
    for _ in range(60):
        await bed.clock.forward(1)
    assert len(bed.server.findings) == 20
    assert poison not in bed.server.findings
    (said,) = [o.data for o in bed.server.observations.values() if "why" in o.data]
    assert said["event"] == "spool_refused"
    assert said["id"] == poison
    assert bed.node.spool.parcel(500).ids == []
    bed.server.refuses = lambda _: False
    await bed.stop()
    await bed.started()  # tried again: the server, or the agent, may know better by now
    await until(lambda: poison in bed.server.findings)


async def test_a_batch_refused_with_nothing_in_it_blames_nothing(bed: Bed) -> None:
    await bed.started()
    bed.server.refuses_all = True
    bed.kernel.write(XID_79)
    for _ in range(30):
        await bed.clock.forward(1)
    assert 3 <= bed.server.refused < 60
    bed.server.refuses_all = False
    await bed.clock.forward(30)
    await until(lambda: bed.server.codes == ["GPU-XID-79"])


async def test_a_server_that_refuses_even_that_is_told_so_once(bed: Bed) -> None:
    await bed.started()
    await until(lambda: bed.node.spool.parcel(1).ids == [])
    bed.server.refuses = bool
    bed.kernel.write(XID_79)
    for _ in range(30):
        await bed.clock.forward(1)
    assert bed.node.spool.parcel(1).ids == []
    assert bed.server.refused < 20


async def test_the_end_of_a_job_is_checked_before_the_verdict_settles(bed: Bed) -> None:
    await bed.started()
    await bed.becomes("OK/settled")
    bed.kernel.write("benign")
    await settle()
    bed.kernel.promised = bed.kernel.next_seq
    _epilog(bed)
    await bed.becomes("OK/checking")
    assert bed.file().phase is Phase.CHECKING
    bed.kernel.write("benign")
    await bed.becomes("OK/settled")
    await until(lambda: _seen(bed, ObservationKind.GATE))
    assert _seen(bed, ObservationKind.GATE)[0].data["job"] == "77"


async def test_a_check_after_a_job_that_does_not_end_says_so(bed: Bed) -> None:
    await bed.started()
    bed.server.order(
        OrderKind.POLICY, value=msgspec.json.encode(NodePolicy(version="v", check_s=1)).decode()
    )
    await until(lambda: bed.node.policy.check_s == 1)
    bed.kernel.write("benign")
    await settle()
    bed.kernel.promised = bed.kernel.next_seq
    _epilog(bed)
    await bed.becomes("OK/checking")
    await bed.becomes("UNKNOWN/settled")
    assert "post-job" in bed.verdict.message


async def test_gate_records_are_told_once_across_restarts(bed: Bed) -> None:
    await bed.started()
    _epilog(bed)
    await until(lambda: _seen(bed, ObservationKind.GATE))
    await bed.kill()
    _epilog(bed)
    await bed.started()
    await until(lambda: len(_seen(bed, ObservationKind.GATE)) == 2)


async def test_a_second_agent_on_the_same_state_is_refused(bed: Bed) -> None:
    await bed.started()
    with pytest.raises(StorageError, match="in use by another agent"):
        await bed.made().run(asyncio.Event())


async def test_it_says_when_it_starts_and_stops(bed: Bed) -> None:
    await bed.started()
    await bed.stop()
    told = [one.data["event"] for one in _seen(bed, ObservationKind.AGENT)]
    assert told == ["started", "stopping"]


def _seen(bed: Bed, kind: ObservationKind) -> list[Observation]:
    return [one for one in bed.server.observations.values() if one.kind is kind]


def _epilog(bed: Bed) -> None:
    line = f"gate1 epilog end end {int(bed.clock.uptime_s())} {BOOT} 77 bob 1000 0,1 0\n"
    with (bed.config.run_dir / "gate" / "records").open("a") as file:
        file.write(line)


async def test_a_spool_full_of_real_data_stops_the_reading_and_says_so(bed: Bed) -> None:
    bed.server.down = True
    await bed.started()
    await bed.becomes("OK/settled")
    bed.node.disk.spool._max_bytes = 4000
    for bus in range(40):
        bed.kernel.write(XID_79.replace("41:00", f"{bus + 16:02x}:00").replace("79,", "13,"))
        await settle()
    await until(lambda: bed.node.full)
    bed.kernel.write("one more")
    await bed.becomes("UNKNOWN/settled")
    assert "spool is full" in bed.verdict.message
    bed.server.down = False
    await bed.clock.forward(20)
    await bed.becomes("OK/settled")
    assert bed.node.cursor.seq == 40


async def test_only_lines_that_no_finding_rests_on_are_dropped_and_counted(bed: Bed) -> None:
    await bed.started()
    await bed.becomes("OK/settled")
    bed.server.down = True
    bed.node.disk.spool._max_bytes = 6000
    bed.kernel.write(XID_79)
    for number in range(60):
        bed.kernel.write(f"NVRM: GPU Board Serial Number: {number:013}")
        await settle()
    await until(lambda: bed.node.spool.dropped() > 0)
    assert not bed.node.full
    bed.server.down = False
    await bed.clock.forward(20)
    await until(lambda: _seen(bed, ObservationKind.KERNEL_LINE))
    await until(lambda: not bed.node.spool.parcel(1).ids)
    told = {bool(one.debug): one for one in _seen(bed, ObservationKind.KERNEL_LINE)}
    assert told[True].data["text"] != XID_79
    assert told[False].data["text"] == XID_79
    dropped = sum(batch.dropped_debug for batch in bed.server.batches)
    lines = [one for one in _seen(bed, ObservationKind.KERNEL_LINE) if one.debug]
    assert dropped > 0
    assert len(lines) + dropped == 60
    spoken = [
        one for one in _seen(bed, ObservationKind.AGENT) if one.data["event"] == "spool_dropped"
    ]
    assert sum(int(str(one.data["dropped"])) for one in spoken) == dropped


async def test_a_loop_that_fails_unforeseen_is_restarted_and_makes_the_node_unknown(
    bed: Bed,
) -> None:
    await bed.started()
    await bed.becomes("OK/settled")
    sound, bed.probe.seen = bed.probe.seen, "no hardware at all"  # type: ignore[assignment]
    await bed.clock.forward(16)
    await bed.becomes("UNKNOWN/settled")
    assert "look failed and was started again: AttributeError" in bed.verdict.message
    bed.probe.seen = sound
    await bed.clock.forward(80)
    await bed.becomes("OK/settled")


async def test_a_probe_that_hangs_is_unknown_and_not_started_again(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("komainu.agent.look.PROBE_S", 0.05)
    started = 0

    async def hang() -> None:
        nonlocal started
        started += 1
        await asyncio.Event().wait()

    monkeypatch.setattr(bed.probe, "hardware", hang)
    await bed.started()
    await bed.becomes("UNKNOWN/settled")
    await bed.clock.forward(40)
    assert started == 1


async def test_correlation_memory_in_another_form_is_replaced_and_faults_are_kept(
    bed: Bed,
) -> None:
    await bed.started()
    bed.kernel.write(XID_79)
    await until(lambda: bed.server.findings)
    bed.server.order(OrderKind.HOLD, reason="r")
    await bed.becomes("FAULT/settled")
    await bed.stop()
    with sqlite3.connect(bed.config.state_dir / "agent.db") as db:
        db.execute("UPDATE kept SET value = '[1]' WHERE key = 'memory'")
    db.close()
    bed.server.down = True
    await bed.started()
    await bed.clock.forward(6)
    assert bed.word == "FAULT/settled"
    assert bed.node.orders.seen == 1
    assert not bed.node.disk.trouble


async def test_orders_that_skip_a_number_wait_for_the_missing_one(bed: Bed) -> None:
    await bed.started()
    hold = bed.server.order(OrderKind.HOLD, reason="r")
    await bed.becomes("FAULT/settled")
    bed.node.obey([msgspec.structs.replace(hold, number=3, previous=2, kind=OrderKind.RELEASE)])
    assert bed.word == "FAULT/settled"
    assert bed.node.orders.seen == 1


async def test_one_look_ends_by_itself(bed: Bed) -> None:
    bed.kernel.write(XID_79)
    verdict = await bed.made().once()
    assert verdict.verdict is Verdict.FAULT
    assert bed.server.codes == ["GPU-XID-79"]


async def test_a_restart_does_not_pass_through_unknown(bed: Bed) -> None:
    await bed.started()
    await bed.becomes("OK/settled")
    await bed.stop()
    bed.kernel.write("read after the start")
    told = len(bed.server.verdicts)
    bed.start()
    while len(bed.verdict.checks) < 4:
        assert bed.file().verdict is Verdict.OK
        await asyncio.sleep(0)
    await bed.stop()
    assert {one.verdict for one in bed.server.verdicts[told:]} == {Verdict.OK}


async def test_a_start_that_cannot_look_is_unknown_before_the_old_verdict_is_stale(
    bed: Bed,
) -> None:
    await bed.started()
    await bed.becomes("OK/settled")
    await bed.stop()
    bed.probe.seen = None
    bed.kernel.unreadable = "gone"
    bed.start()
    await bed.clock.forward(4)
    assert bed.file().verdict is Verdict.UNKNOWN
