"""The FAULT that the last run left behind, for when the state it rested on is gone.

`agent.db` damaged, moved away or never restored would otherwise turn a node known to be bad into one
nobody has anything against. So a FAULT in the verdict file stays until someone who knows better has
spoken: the server, whose reply brings every order it has for this node, or a person on a node that
has no server (`komainu agent --once --accept-state`).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from komainu.agent.place import Cursor
from komainu.agent.publish import NAME
from komainu.agent.spool import Spool
from komainu.core.errors import InputError
from komainu.core.gate import read_verdict
from komainu.core.verdict import Verdict

LEFT = "left-verdict"
"""The check that says FAULT while such a verdict stands."""
_WORDS = "kept from before the agent's state was lost: "
_CHARACTERS = 200
"""Of the old message; a verdict file holds 512 bytes in all."""


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What the last run left; kept durably until it no longer stands."""

    fault: str = ""
    """What the verdict said; empty: nothing stands."""

    @property
    def detail(self) -> str:
        return _WORDS + self.fault


def left_by(spool: Spool, run_dir: Path, state_dir: Path) -> Left:
    """What stands from before. Read before the first verdict of this run is written."""
    if spool.get("cursor", Cursor) is not None:
        return spool.get("left", Left) or Left()
    said = [_fault(folder / NAME) for folder in (run_dir, state_dir)]
    return Left(fault=next(filter(None, said), ""))


def _fault(path: Path) -> str:
    """The message of a verdict that says FAULT; empty for any other, and where there is none."""
    try:
        found = read_verdict(path.read_text("ascii"))
    except (OSError, UnicodeDecodeError, InputError):
        return ""
    if found.verdict is not Verdict.FAULT:
        return ""
    message = found.message.rpartition(_WORDS)[2]  # also where state is lost once more
    return message[:_CHARACTERS] or "no message"
