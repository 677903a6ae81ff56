"""How far an agent has read, and where it keeps its files."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """How far the kernel log of one boot has been judged."""

    boot_id: str = ""
    seq: int | None = None
    mono_us: int = 0


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where one agent keeps its files, and how much."""

    state_dir: Path
    run_dir: Path
    spool_max_bytes: int

    @property
    def spool(self) -> Path:
        return self.state_dir / "agent.db"
