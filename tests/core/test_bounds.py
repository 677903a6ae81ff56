from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.samples import batch, finding, observation

from komainu.core.bounds import checked, holds_nul, without_nul
from komainu.core.errors import InputError
from komainu.core.node import NodeVerdict
from komainu.core.observation import Component, Evidence
from komainu.core.verdict import Verdict
from komainu.core.wire import Batch, GpuSeen, Hardware

WHOLE = batch(finding(), observations=(observation(),), verdict=Verdict.FAULT)
_decode = msgspec.json.Decoder(Batch).decode


def _with(**fields: object) -> Batch:
    return msgspec.structs.replace(WHOLE, **fields)


def _finding(**fields: object) -> Batch:
    return _with(findings=[msgspec.structs.replace(finding(), **fields)])


def _seen(**fields: object) -> Batch:
    return _with(observations=[msgspec.structs.replace(observation(), **fields)])


def _verdict(**fields: object) -> Batch:
    return _with(verdict=NodeVerdict(verdict=Verdict.FAULT, **fields))  # type: ignore[arg-type]


def _evidence(**fields: object) -> Batch:
    piece = Evidence(observation="O-1", at=WHOLE.sent_at, text="")
    return _finding(evidence=(msgspec.structs.replace(piece, **fields),))


def test_an_ordinary_batch_is_taken_as_it_is() -> None:
    assert checked(WHOLE) is WHOLE


def test_a_node_whose_clock_was_never_set_is_heard() -> None:
    unset = datetime(1970, 1, 1, 0, 1, tzinfo=UTC)
    both = _finding(at=unset)
    assert checked(msgspec.structs.replace(both, sent_at=unset)).sent_at == unset


LONG = "x" * 129
BROKEN: Mapping[str, Callable[[], Batch]] = {
    "batch id": lambda: _with(id=LONG),
    "batch boot_id": lambda: _with(boot_id=LONG),
    "batch agent_version": lambda: _with(agent_version=LONG),
    "batch policy_seen": lambda: _with(policy_seen=LONG),
    "batch sent_at": lambda: _with(sent_at=datetime(9999, 12, 31, tzinfo=UTC)),
    "finding 'F-1' at": lambda: _finding(at=datetime(1, 1, 1, tzinfo=UTC)),
    "finding 'F-1' code": lambda: _finding(code=LONG),
    "finding 'F-1' cause": lambda: _finding(cause=LONG),
    "finding 'F-1' job": lambda: _finding(job=LONG),
    "finding 'F-1' component kind": lambda: _finding(component=Component(LONG)),
    "finding 'F-1' component id": lambda: _finding(component=Component("gpu", LONG)),
    "finding 'F-1' summary": lambda: _finding(summary="x" * 1001),
    "finding 'F-1' vendor_action": lambda: _finding(vendor_action="x" * 1001),
    "finding 'F-1' confidence": lambda: _finding(confidence=1.5),
    "finding 'F-1' fields": lambda: _finding(fields={str(n): n for n in range(201)}),
    "finding 'F-1' fields name": lambda: _finding(fields={LONG: 1}),
    "finding 'F-1' evidence": lambda: _finding(evidence=finding().evidence * 33),
    "finding 'F-1' evidence text": lambda: _evidence(text="x" * 2001),
    "finding 'F-1' evidence observation": lambda: _evidence(observation=LONG),
    "finding 'F-1' evidence at": lambda: _evidence(at=datetime(2100, 1, 1, tzinfo=UTC)),
    "observation 'O-1' at": lambda: _seen(at=datetime(2100, 1, 1, tzinfo=UTC)),
    "observation 'O-1' data": lambda: _seen(data={str(n): n for n in range(201)}),
    "observation 'O-1' data text": lambda: _seen(data={"text": "x" * 16_385}),
    "verdict message": lambda: _verdict(message="x" * 16_385),
    "verdict codes": lambda: _verdict(codes=(LONG,)),
    "verdict findings": lambda: _verdict(findings=("F-1",) * 201),
    "verdict checks": lambda: _verdict(checks={str(n): Verdict.OK for n in range(201)}),
    "verdict details gpu": lambda: _verdict(details={"gpu": "x" * 16_385}),
    "verdict since": lambda: _verdict(since=datetime(1969, 12, 31, tzinfo=UTC)),
    "hardware rack": lambda: _with(hardware=Hardware(rack=LONG)),
    "hardware gpus": lambda: _with(hardware=Hardware(gpus=(GpuSeen(index=0),) * 201)),
    "gpu serial": lambda: _with(hardware=Hardware(gpus=(GpuSeen(index=0, serial=LONG),))),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_out_of_bounds_is_named(what: str) -> None:
    with pytest.raises(InputError) as caught:
        checked(BROKEN[what]())
    assert str(caught.value).startswith(f"{what} is out of bounds: found ")


def _dates(report: Any, path: str = "") -> list[str]:
    """Where in a batch's JSON dates stand."""
    if isinstance(report, dict):
        return [found for name in report for found in _dates(report[name], f"{path}/{name}")]
    if isinstance(report, list):
        return [found for n, one in enumerate(report) for found in _dates(one, f"{path}/{n}")]
    return [path] if isinstance(report, str) and report.startswith("2026-") else []


DATED = msgspec.to_builtins(_verdict(since=WHOLE.sent_at, advise_only=False))


@pytest.mark.parametrize("path", _dates(DATED))
def test_no_date_is_read_without_its_zone(path: str) -> None:
    """It could be compared with no other date, and every look at the cluster would fail on it."""
    report: Any = json.loads(json.dumps(DATED))
    *into, last = path.strip("/").split("/")
    place = report
    for step in into:
        place = place[int(step) if isinstance(place, list) else step]
    place[last] = place[last].removesuffix("Z")
    with pytest.raises(msgspec.ValidationError, match="timezone"):
        _decode(json.dumps(report))


@pytest.mark.parametrize(
    "number",
    [("orders_seen", 2**70), ("orders_seen", -1), ("spooled", 2**70), ("dropped_debug", -1)],
)
def test_a_count_that_no_node_can_have_is_not_read(number: tuple[str, int]) -> None:
    report = msgspec.to_builtins(WHOLE) | dict([number])
    with pytest.raises(msgspec.ValidationError):
        _decode(json.dumps(report))


@given(st.dictionaries(st.text("a\x00\\u0"), st.text("a\x00\\u0\ufffd")))
def test_nul_is_found_and_replaced_and_nothing_else_is(texts: dict[str, str]) -> None:
    raw = msgspec.json.encode(texts)
    assert holds_nul(raw) == ("\x00" in "".join([*texts, *texts.values()]))
    read = msgspec.json.decode(without_nul(raw))
    assert read == {
        name.replace("\x00", "\ufffd"): text.replace("\x00", "\ufffd")
        for name, text in texts.items()
    }
