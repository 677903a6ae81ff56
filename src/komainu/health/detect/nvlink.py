"""NVLink Xids carry registers; this file says what they mean.

Up to generation 4 (Xid 74): seven registers, of which indices 0, 2, 3 and 4 are decoded; table from
NVIDIA's Xid catalogue as NVSentinel documents it. Generation 5 (144-150): unit and severity word; the
sub-code of link events is inferred from public samples, so it is shown and decides nothing.
"""

from __future__ import annotations

import re

from komainu.core.observation import Scalar
from komainu.core.verdict import FaultClass
from komainu.health.model import SEVERITY

_REGISTERS = re.compile(
    r"(?a)NVLink: fatal error detected on link (-?\d{1,3})(?:\(([0-9A-Fa-fx, ]{1,120})\))?"
)
_NVLINK5 = re.compile(
    r"(?a)([A-Z0-9_]{2,40}) +(Nonfatal|Non-fatal|Fatal|Correctable) +XC(\d+) +i(\d+) +Link +(-?\d{1,3})"
    r"(?: +\((0x[0-9A-Fa-f]{1,8}) (0x[0-9A-Fa-f]{1,8}))?"
)

_IGNORE = (FaultClass.INFO, 0, "harmless bit")
_SYMPATHETIC = (FaultClass.WATCH, 0, "follows another fault; alone, report it to NVIDIA")
_ECC = (FaultClass.WATCH, 3, "ECC or parity error on the link; acted on when it is the third")
_HARDWARE = (FaultClass.QUARANTINE_NOW, 0, "hardware fault; reseat")
_MARGINAL = (FaultClass.WATCH, 2, "marginal signal; acted on when it repeats")
_REPEATED = (FaultClass.WATCH, 2, "acted on when it repeats")
_DIAGNOSE = (FaultClass.WATCH, 2, "field diagnostic when it repeats")
_BUG = (FaultClass.WATCH, 0, "report it to NVIDIA")
_FABRIC = (FaultClass.DRAIN_AFTER_JOB, 0, "the fabric needs a reset")

_Rule = tuple[FaultClass, int, str]


def _bits(*rules: tuple[tuple[int, ...], _Rule]) -> dict[int, _Rule]:
    return {bit: rule for bits, rule in rules for bit in bits}


_BITS: dict[int, dict[int, _Rule]] = {
    0: _bits(
        ((0, 23, 30), _IGNORE),
        ((1, 20), _SYMPATHETIC),
        ((4, 5), _ECC),
        ((8, 9, 12, 16, 17, 24, 28), _HARDWARE),
        ((21, 22), _MARGINAL),
        ((27, 29), _REPEATED),
    ),
    2: _bits(((0, 1, 2, 6), _ECC), ((13,), _BUG), ((16, 19), _DIAGNOSE), ((17, 18), _REPEATED)),
    3: _bits(((16, 17), _SYMPATHETIC), ((18,), _FABRIC)),
    4: _bits(((18, 19, 21, 22, 24, 25, 27, 28), _ECC), ((20, 23, 26, 29), _IGNORE)),
}
"""register index → bit → (class, how many on one link make it a drain (0: never), words)."""


def decode_registers(message: str, fields: dict[str, Scalar]) -> None:
    """Xid 74: the worst known bit decides; without a known bit the catalogue's default stands."""
    found = _REGISTERS.search(message)
    if found is None:
        return
    fields["link"] = int(found[1])
    registers = [_number(word) for word in found[2].split(",")] if found[2] else []
    rules = [
        rule
        for index, known in _BITS.items()
        if index < len(registers) and registers[index]
        for bit, rule in known.items()
        if registers[index] >> bit & 1
    ]
    if rules:
        graded, repeats, why = max(rules, key=lambda rule: (SEVERITY[rule[0]], -rule[1]))
        fields["decoded"], fields["decoded_why"] = graded.value, why
        if repeats:
            fields["repeats_to_drain"] = repeats


def _number(word: str) -> int:
    try:
        return int(word.strip(), 16)
    except ValueError:
        return 0


_WORDS = {
    "Fatal": (FaultClass.QUARANTINE_NOW, "fatal"),
    "Nonfatal": (FaultClass.WATCH, "non-fatal"),
    "Non-fatal": (FaultClass.WATCH, "non-fatal"),
    "Correctable": (FaultClass.INFO, "correctable"),
}


def decode_nvlink5(message: str, fields: dict[str, Scalar]) -> None:
    """Xid 144-150: the driver's severity word decides."""
    # Where it stands unless a process name holds a comma; the search is ten times slower.
    found = _NVLINK5.match(message) or _NVLINK5.search(message)
    if found is None:
        return
    unit, word, crossbar, instance, link, info, status = found.groups()
    graded, why = _WORDS[word]
    fields["unit"], fields["severity_word"] = unit, word
    fields["xc"], fields["instance"], fields["link"] = int(crossbar), int(instance), int(link)
    if info is not None:
        fields["intrinfo"], fields["error_status"] = int(info, 16), int(status, 16)
        if unit == "NETIR_LINK_EVT":
            fields["sub_code"] = int(info, 16) >> 20
    where = "whole device" if int(link) < 0 else f"link {int(link)}"
    fields["decoded"], fields["decoded_why"] = graded.value, f"{why}, {where}"
