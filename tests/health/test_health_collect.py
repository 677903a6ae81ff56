from __future__ import annotations

from datetime import timedelta

import pytest
from tests.health.health_lines import BOOT, KEY, START, benign, xid

from komainu.core.names import stable_id
from komainu.core.observation import ObservationKind
from komainu.health.collect import observation_of, observation_of_previous, observations_of
from komainu.health.detect import Memory, detect
from komainu.ports import KernelRecord

LATER = START + timedelta(days=1)
OFF = xid(79, "GPU has fallen off the bus.")


def record(text: str = OFF, *, facility: int = 0, seq: int = 5) -> KernelRecord:
    return KernelRecord(seq=seq, mono_us=2_500_000, facility=facility, level=3, text=text)


def test_a_kernel_record_becomes_an_observation() -> None:
    seen = observation_of(record(), key=KEY, boot_id=BOOT, at=START)
    assert seen is not None
    assert seen.id == stable_id(KEY.cluster, KEY.node, BOOT, "5", prefix="O-")
    assert seen.kind is ObservationKind.KERNEL_LINE
    assert seen.data == {"text": OFF, "seq": 5, "boot_id": BOOT, "mono_us": 2_500_000}
    assert seen.at == START


@pytest.mark.parametrize("facility", range(1, 24))
def test_what_user_space_wrote_means_nothing(facility: int) -> None:
    assert observation_of(record(facility=facility), key=KEY, boot_id=BOOT, at=START) is None
    assert (
        observations_of([record(facility=facility)], key=KEY, boot_id=BOOT, booted=START, now=LATER)
        == []
    )


def test_a_record_of_the_kernel_has_no_prefix_to_take_off() -> None:
    for text in (
        f"[   12.5] {OFF}",
        f"kernel: {OFF}",
        f"host kernel: {OFF}",
        f" {OFF}",
        f"x\n{OFF}",
    ):
        assert observation_of(record(text), key=KEY, boot_id=BOOT, at=START) is None


def test_benign_records_are_dropped() -> None:
    records = [record(text, seq=n) for n, text in enumerate(benign())]
    assert observations_of(records, key=KEY, boot_id=BOOT, booted=START, now=LATER) == []


def test_many_at_once_are_the_same_as_one_by_one() -> None:
    records = [record(seq=1), record("usb 1-1: new device", seq=2), record(xid(48), seq=3)]
    many = observations_of(records, key=KEY, boot_id=BOOT, booted=START, now=LATER)
    at = START + timedelta(seconds=2.5)
    single = [observation_of(r, key=KEY, boot_id=BOOT, at=at) for r in records]
    assert many == [seen for seen in single if seen is not None]


def test_no_record_is_later_than_now() -> None:
    (seen,) = observations_of([record()], key=KEY, boot_id=BOOT, booted=START, now=START)
    assert seen.at == START


def test_the_same_record_of_another_boot_is_another_observation() -> None:
    one = observation_of(record(), key=KEY, boot_id=BOOT, at=START)
    other = observation_of(record(), key=KEY, boot_id=BOOT.replace("7", "8"), at=START)
    assert one is not None
    assert other is not None
    assert one.id != other.id


def test_a_line_of_the_previous_boot_is_read_behind_its_time_stamp() -> None:
    text = f"[ 1843.308145] {OFF}"
    seen = observation_of_previous(text, key=KEY, boot_id_hint="before", at=START)
    again = observation_of_previous(
        text, key=KEY, boot_id_hint="before", at=START + timedelta(hours=1)
    )
    later = observation_of_previous(
        f"[ 1999.308145] {OFF}", key=KEY, boot_id_hint="before", at=START
    )
    assert seen is not None
    assert again is not None
    assert later is not None
    assert seen.id == again.id != later.id
    assert detect(Memory(), [seen])[1][0].code == "GPU-XID-79"


def test_a_programs_line_of_the_previous_boot_means_nothing() -> None:
    for text in (
        f"May 19 07:08:57 h python3[7]: {OFF}",
        "[ 1.5] usb 1-1: new device",
        "h systemd-networkd[5]: ib0: Lost carrier",
    ):
        assert observation_of_previous(text, key=KEY, boot_id_hint="before", at=START) is None
