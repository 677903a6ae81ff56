"""The verdict file, written for the gate.

Twice: renewed each second in the run directory (a tmpfs), and on change in the state directory (it
survives a reboot). Both by writing a new file and renaming it, so that no reader ever sees half of
one. What the words in it mean: core/gate.py.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from komainu.core.errors import StorageError

NAME = "verdict"


class VerdictFiles:
    """The two copies of one node's verdict."""

    def __init__(self, run_dir: Path, state_dir: Path) -> None:
        self._run, self._state = run_dir / NAME, state_dir / NAME

    def renew(self, text: str) -> None:
        """The run directory's copy. Raises StorageError."""
        _replace(self._run, text, durable=False)

    def keep(self, text: str) -> None:
        """The state directory's copy, safe against a power cut. Raises StorageError."""
        _replace(self._state, text, durable=True)

    def there(self) -> bool:
        """Whether an earlier run's verdict is in the run directory."""
        return self._run.exists()

    def withdraw(self) -> None:
        """Remove the run directory's copy, where it can be neither renewed nor believed: the gate
        then reads the state directory's.
        """
        with contextlib.suppress(OSError):
            self._run.unlink(missing_ok=True)


def _replace(path: Path, text: str, *, durable: bool) -> None:
    part = path.with_name(path.name + ".new")
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        try:
            os.write(fd, text.encode("ascii"))
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        part.replace(path)
    except OSError as error:
        raise StorageError(
            f"verdict file {path} cannot be written: {error.strerror}. The gate treats the node as "
            f"unknown until it can: free the file system, or make it writable."
        ) from error
