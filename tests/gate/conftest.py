"""Every test of the gate runs under every shell there is; the lists of shells are in gatebed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.gate.gatebed import SHELLS, Bed


@pytest.fixture(params=[name for name in SHELLS if not name.endswith("-eu")])
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> Bed:
    return Bed(tmp_path, SHELLS[request.param])


@pytest.fixture(params=list(SHELLS))
def any_bed(request: pytest.FixtureRequest, tmp_path: Path) -> Bed:
    """Also under `-eu`, which a site's wrapper may well set."""
    return Bed(tmp_path, SHELLS[request.param])


@pytest.fixture
def one_bed(tmp_path: Path) -> Bed:
    """One shell, for what takes seconds and does not depend on the shell."""
    return Bed(tmp_path, next(iter(SHELLS.values())))


@pytest.fixture(params=["dash", "bash"])
def plain_bed(request: pytest.FixtureRequest, tmp_path: Path) -> Bed:
    """Shells that have no sleep of their own (busybox has, and it takes fractions)."""
    return Bed(tmp_path, SHELLS[request.param])
