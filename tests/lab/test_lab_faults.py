"""The lab's faults keep the shape of the real trace, and print what real drivers print."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from komainu.core.names import ClusterName, NodeKey, NodeName
from komainu.lab.faults import TOLD, Fault, Strike, schedule
from komainu.lab.lines import LINES, NOISE, printed
from komainu.lab.node import gpus_of

KEY = NodeKey(ClusterName("lab"), NodeName("gpu-001"))


def strikes(seed: int, count: int = 300) -> list[Strike]:
    return list(itertools.islice(schedule(seed, every_s=30, first_s=15, lasts_s=(60, 150)), count))


def test_the_first_fault_strikes_soon_and_then_every_half_minute_or_so() -> None:
    times = [strike.at_s for strike in strikes(1)]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert times[0] == 15
    assert all(5.9 < gap < 60.1 for gap in gaps)
    assert 15 <= sum(gaps) / len(gaps) <= 45
    assert len(set(gaps)) > 20


def test_repairs_take_between_the_bounds() -> None:
    assert all(60 <= strike.lasts_s <= 150 for strike in strikes(2))


def test_the_same_seed_is_the_same_story() -> None:
    assert strikes(7) == strikes(7)
    assert strikes(7) != strikes(8)


def test_some_servers_fail_again() -> None:
    servers = [strike.server for strike in strikes(3, 200)]
    assert len(set(servers)) < len(servers)


@pytest.mark.parametrize("fault", list(Fault))
def test_every_fault_is_told_and_prints(fault: Fault) -> None:
    gpu = gpus_of(KEY, 8)[3]
    lines = printed(fault, gpu, random.Random(0))
    assert fault in TOLD
    assert fault in LINES
    assert lines
    assert all("{" not in line.text for line in lines)


def test_an_xid_names_the_gpu_it_struck() -> None:
    gpu = gpus_of(KEY, 8)[3]
    text = "\n".join(line.text for line in printed(Fault.DOUBLE_BIT, gpu, random.Random(0)))
    assert re.findall(r"Xid \(PCI:(\S+)\): (\d+),", text) == [
        (gpu.pci, "48"),
        (gpu.pci, "63"),
        (gpu.pci, "94"),
    ]
    assert gpu.uuid in text


def test_gpus_are_the_same_every_time_and_all_different() -> None:
    assert gpus_of(KEY, 8) == gpus_of(KEY, 8)
    everyone = [
        gpu for n in range(20) for gpu in gpus_of(NodeKey(KEY.cluster, NodeName(f"n{n}")), 8)
    ]
    assert len({gpu.uuid for gpu in everyone}) == 160
    assert len({gpu.pci for gpu in everyone[:8]}) == 8


def test_noise_names_no_xid() -> None:
    assert not any("Xid" in line for line in NOISE)
