"""The shell's answer to any file is the answer of the rules, written down once more in Python."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gate.gatebed import BOOT, OTHER_BOOT, SHELLS, Bed, replace, uptime

from komainu.core.errors import InputError
from komainu.core.gate import VerdictFile, Why, read_verdict, write_verdict
from komainu.core.node import NodePolicy, NodeVerdict, Phase
from komainu.core.verdict import Verdict

Answer = tuple[int, Why]


def read(content: bytes | None) -> VerdictFile | Why:
    """One file as the gate reads it: the first line, and no shell can hold a NUL."""
    if content is None:
        return Why.MISSING
    text = content.decode("latin-1").replace("\0", "")
    first, newline, _ = text.partition("\n")
    try:
        return read_verdict(first + newline)
    except InputError:
        return Why.GARBLED


def chosen(first: VerdictFile | Why, second: VerdictFile | Why, now: int) -> VerdictFile | None:
    """Which of the two files counts."""
    ours = isinstance(first, VerdictFile) and first.boot_id == BOOT
    if isinstance(first, VerdictFile) and (
        first.fresh(BOOT, now) or (ours and first.verdict is Verdict.FAULT)
    ):
        return first
    if isinstance(second, VerdictFile):
        if not isinstance(first, VerdictFile):
            return second
        if second.boot_id == BOOT:
            if second.verdict is Verdict.FAULT and first.uptime_s > now:
                return second
            return first if ours and second.uptime_s < first.uptime_s else second
        return second if not ours and second.verdict is Verdict.FAULT else first
    return first if isinstance(first, VerdictFile) else None


def expected(first: bytes | None, second: bytes | None, site: str, now: int) -> Answer:
    """The rules for files that do not change while the gate looks, and no bound to wait."""
    renewed = read(first)
    file = chosen(renewed, read(second), now)
    problem = renewed if isinstance(renewed, Why) else Why.STALE
    policy = file.stale if file and file.stale in {"open", "closed"} else site
    by_policy = int(policy == "closed")
    if file is None:
        return by_policy, problem
    if file.verdict is Verdict.FAULT:
        return 1, Why.CONFIRM_TIMEOUT if file.phase is Phase.CONFIRMING else Why.FAULT
    if not file.fresh(BOOT, now):
        return by_policy, problem
    if file.verdict is Verdict.OK and file.phase is not Phase.CONFIRMING:
        return 0, Why.OK if file.phase is Phase.SETTLED else Why.CHECKING
    return by_policy, Why.SKIPPED if file.verdict is Verdict.SKIPPED else Why.UNKNOWN


def numbers(now: int) -> st.SearchStrategy[str]:
    """Stamps and ages well away from the edge of fresh, and what is no number at all."""
    return st.sampled_from(
        [str(now), f"{now:010}", f"0{now}", str(now + 100_000), "0", "", "08", "-1", "1.5", "x",
         "99999999999", "9" * 30, "1_0"]
    )  # fmt: skip


def words(now: int) -> st.SearchStrategy[str]:
    often = st.sampled_from(["OK", "FAULT", "UNKNOWN", "SKIPPED"])
    boots = st.sampled_from([BOOT, OTHER_BOOT])
    return st.tuples(
        st.sampled_from(["komainu1"] * 12 + ["komainu2", "", "KOMAINU1"]),
        often | st.sampled_from(["ok", "", "OKAY", "*"]),
        st.sampled_from(["settled", "settled", "confirming", "checking", "", "done"]),
        boots | st.sampled_from([BOOT.upper(), BOOT[:-1], "-" * 36, "?" * 36, ""]),
        st.just(str(now)) | numbers(now),
        st.just("1000") | numbers(now),
        st.sampled_from(["open", "closed", "", "ajar", "*"]),
        st.sampled_from(["open", "wait", ""]),
        st.sampled_from(["0", "00", "", "x"]),
        st.text(st.characters(max_codepoint=255), max_size=60) | st.just("x" * 500),
    ).map(" ".join)


def contents(now: int) -> st.SearchStrategy[bytes | None]:
    line = st.tuples(words(now), st.sampled_from(["\n"] * 6 + ["", "\r\n", " \n", "\n\n"]))
    return (
        line.map(lambda pair: "".join(pair).encode("latin-1")) | st.binary(max_size=80) | st.none()
    )


NOW = uptime()


@pytest.mark.parametrize("shell", [name for name in SHELLS if not name.endswith("-eu")])
@settings(max_examples=60, deadline=None)
@given(first=contents(NOW), second=contents(NOW), site=st.sampled_from(["open", "closed"]))
def test_the_shell_answers_as_the_rules_say(
    shell: str, first: bytes | None, second: bytes | None, site: str
) -> None:
    root = Path(tempfile.mkdtemp())
    try:
        bed = Bed(root, SHELLS[shell])
        bed.settings["stale"] = site
        for path, content in ((bed.verdict, first), (bed.remembered, second)):
            if content is not None:
                replace(path, content)
        code = bed.run().code
        (record,) = bed.records()
    finally:
        shutil.rmtree(root)
    assert (code, record.why) == expected(first, second, site, uptime())


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("verdict", list(Verdict))
def test_what_the_agent_writes_is_understood(bed: Bed, verdict: Verdict, phase: Phase) -> None:
    policy = NodePolicy(confirm_s=0, check_s=0, ttl_s=1000)
    judged = NodeVerdict(verdict=verdict, phase=phase, message="as the agent\nwrites\tit é")
    text = write_verdict(judged, policy, BOOT, uptime())
    replace(bed.verdict, text)
    code, why = bed.answer()
    assert (code, why) == expected(text.encode(), None, "open", uptime())
    assert why != "garbled"
