"""Many at once: the verdict is replaced while it is read, and records are appended by many."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.gate.gatebed import Bed, replace, verdict_line

from komainu.quarantine import collect
from komainu.quarantine.collect import GateOffset, GateRecords


def test_a_verdict_replaced_while_it_is_read_is_never_garbled(bed: Bed) -> None:
    replace(bed.verdict, verdict_line())
    stop = threading.Event()

    def renew() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            replace(bed.verdict, verdict_line(message="x" * (n % 300 + 1)))

    agent = threading.Thread(target=renew)
    agent.start()
    try:
        codes = [bed.run().code for _ in range(60)]
    finally:
        stop.set()
        agent.join()
    assert codes == [0] * 60
    assert {record.why.value for record in bed.records()} == {"ok"}


def test_records_appended_by_many_at_once_stay_whole(bed: Bed) -> None:
    replace(bed.verdict, verdict_line())
    gpus = ",".join(f"GPU-{n:08x}-0000-1111-2222-333333333333" for n in range(16))
    bed.environment()

    def job(number: int) -> int:
        env = {"SLURM_JOB_ID": str(number), "SLURM_JOB_GPUS": gpus}
        return bed.run("prolog" if number % 2 else "epilog", env).code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(job, range(160))) == {0}
    found, state = GateRecords(bed.records_path).read_new(GateOffset())
    assert state.garbled == 0
    assert sorted(int(record.job) for _, record in found) == list(range(160))
    assert {len(record.gpus) for _, record in found} == {16}


def test_no_record_is_lost_while_the_reader_renames_the_file(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "ROTATE_BYTES", 600)
    monkeypatch.setattr(collect, "SETTLE_S", 0.3)
    reader, state, seen = GateRecords(bed.records_path), GateOffset(), []
    bed.environment()
    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(bed.run, "epilog", {"SLURM_JOB_ID": str(n)}) for n in range(120)]
        while not all(one.done() for one in running):
            found, state = reader.read_new(state)
            seen += [record.job for _, record in found]
            time.sleep(0.005)
    found, state = reader.read_new(state)
    seen += [record.job for _, record in found]
    assert sorted(map(int, seen)) == list(range(120))
    assert state.generation >= 1
