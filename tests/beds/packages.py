"""Which Debian packages the beds need, and what to type when one is missing.

A bed that cannot start is a failure, never a skip: a test that did not run has shown nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

LIST = Path(__file__).with_name("debian-packages.txt")
SBIN = "/usr/sbin:/sbin:/usr/lib/postgresql/15/bin"


class BedError(Exception):
    """A bed could not be brought up or used; the message says what to do."""


def packages() -> tuple[str, ...]:
    """Every Debian package that some bed needs, as the Makefile installs them."""
    return tuple(LIST.read_text("utf-8").split())


def search_path() -> str:
    """PATH with the directories of daemons, which an ordinary user's PATH lacks."""
    return f"{os.environ.get('PATH', '/usr/bin:/bin')}:{SBIN}"


def require(programs: Iterable[str]) -> None:
    """Raise BedError with the exact command to type when one of `programs` is missing."""
    missing = [name for name in programs if shutil.which(name, path=search_path()) is None]
    if missing:
        raise BedError(
            f"the bed cannot start: {', '.join(missing)} not found. Run:\n"
            f"  apt-get install --no-install-recommends -y {' '.join(packages())}"
        )
