"""NVSwitch lines: SXids from the kernel, and the same errors from Fabric Manager's log.

One error prints up to three lines (summary, severity, data); each is read here, and detect/correlate.py
makes one finding of them. Only the summary carries the severity word and the link.
"""

from __future__ import annotations

import re

from komainu.core.observation import Scalar
from komainu.core.verdict import FaultClass
from komainu.health.model import SEVERITY, Catalogue, Line, Reading

START = "nvidia-nvswitch"

_ADDRESS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?"
_SXID = re.compile(
    rf"(?a)nvidia-nvswitch(\d{{1,3}}): SXid \((?:PCI:)?({_ADDRESS})\): (\d{{1,6}})(?:,|\s|\Z) ?"
    r"(?:(Correctable|Non-fatal|Fatal)\b,? ?|Severity (\d+) )?(?:Link (-?\d{1,3})\b)?"
)
FABRIC_TIME = r"\[[A-Z][a-z]{2} \d{2} \d{4} \d{2}:\d{2}:\d{2}\] \[[A-Z]+\](?: \[tid \d+\])? ?"
_FABRIC = re.compile(
    rf"(?a)(?:{FABRIC_TIME})?detected NVSwitch (fatal|non-fatal|correctable) error (\d{{1,6}}) on fid \d+ "
    rf"on NVSwitch pci bus id ({_ADDRESS})(?: physical id \d+)?(?: port (\d+))?"
)
_MULTICAST = re.compile(
    rf"(?a)(?:{FABRIC_TIME})?failed to find the GPU handle \d+ in the multicast team"
)
_TOPOLOGY = re.compile(
    rf"(?a)(?:{FABRIC_TIME})?detected number of NVSwitches don't match with any supported system topology"
)

_WORDS = {
    "fatal": FaultClass.QUARANTINE_NOW,
    "non-fatal": FaultClass.WATCH,
    "correctable": FaultClass.INFO,
}
# error_nvswitch.c prints the number on the second line; 1 accompanies "Fatal" in public samples.
_NUMBERS = {"0": "non-fatal", "1": "fatal"}


def switch_address(text: str) -> str:
    """A switch's PCI address, lower case, four-digit domain, with its function number."""
    address = text.lower()
    return address[4:] if address.startswith("0000") and address[8:9] == ":" else address


def parse_sxid(text: str) -> Line | None:
    """Read one of the lines of an SXid."""
    found = _SXID.match(text)
    if found is None:
        return None
    index, address, number, word, severity, link = found.groups()
    switch = switch_address(address)
    fields: dict[str, Scalar] = {"pci": switch, "sxid": int(number), "nvswitch": int(index)}
    if word is not None:
        fields["severity_word"] = word.lower()
    elif severity in _NUMBERS:
        fields["severity_word"] = _NUMBERS[severity]
    if link is not None:
        fields["link"] = int(link)
    return Line("nvswitch", f"SXid {int(number)}", "", switch, fields)


def parse_fabric_manager(text: str) -> Line | None:
    """Read a line of Fabric Manager's own log, which is not a kernel line and never comes from the agent."""
    if found := _FABRIC.match(text):
        word, number, address, port = found.groups()
        switch = switch_address(address)
        fields: dict[str, Scalar] = {"pci": switch, "sxid": int(number), "severity_word": word}
        if port is not None:
            fields["link"] = int(port)
        return Line("fabricmanager", f"SXid {int(number)}", "", switch, fields)
    if _MULTICAST.match(text):
        return Line("fabricmanager", "multicast", "FM-MULTICAST")
    if _TOPOLOGY.match(text):
        return Line("fabricmanager", "topology", "FM-TOPOLOGY")
    return None


def grade_sxid(line: Line, catalogue: Catalogue) -> Reading:
    """What an SXid line means: the driver's severity word grades a known code."""
    code = int(line.code.removeprefix("SXid "))
    entry = catalogue.sxids.get(code)
    word = line.fields.get("severity_word")
    graded = FaultClass.UNKNOWN
    if entry is not None:
        graded = _WORDS[str(word)] if word else entry.alone or FaultClass.WATCH
    link = line.fields.get("link")
    where = f"NVSwitch {line.device}" + (f" link {link}" if link is not None else "")
    return Reading(
        line=line,
        finding=f"{'FM' if line.component == 'fabricmanager' else 'NVSWITCH'}-SXID-{code}",
        fault_class=graded,
        graded=graded,
        severity=SEVERITY[graded],
        summary=f"SXid {code} on {where}: {_means(code, catalogue)}"
        + (f", {word}" if word else ""),
    )


def _means(code: int, catalogue: Catalogue) -> str:
    entry = catalogue.sxids.get(code)
    if entry is None:
        return "a code no catalogue knows"
    if not entry.was:
        return f"{entry.what}, {entry.name.removeprefix('NVSWITCH_ERR_HW_')}"
    now = f"{entry.what} from driver {catalogue.renumbered_at} on" if entry.what else "unused now"
    return f"the number means {entry.was} in older drivers, {now}"
