"""Komainu's own errors.

Every message says four things: what failed, on which object, what was found against what was
expected, and what to do next.

    KomainuError
    ├── ConfigError          komainu.toml cannot be used as written
    ├── InputError           something handed to us (a batch, a command's argument) is not acceptable
    │   └── NodeSetError     a node list such as node[1-3] cannot be read
    ├── OutsideError         a system we talk to failed or answered something unexpected
    │   ├── SchedulerError   the scheduler refused or did not answer
    │   └── ServerError      Komainu's own server refused or did not answer
    │       └── ServerRefused  it read what we sent, and will not take that, however often it is sent
    ├── StorageError         what must be remembered could not be written or read
    └── NotAllowed           the person or node may not do this
"""

from __future__ import annotations


class KomainuError(Exception):
    """Base of everything Komainu raises on purpose."""


class ConfigError(KomainuError):
    """komainu.toml cannot be used as written."""


class InputError(KomainuError):
    """Something handed to us is not acceptable; nothing was changed."""


class NodeSetError(InputError):
    """A node list cannot be read."""


class OutsideError(KomainuError):
    """A system we talk to failed."""


class SchedulerError(OutsideError):
    """The scheduler refused, or did not answer in time."""


class ServerError(OutsideError):
    """Komainu's server refused, or did not answer in time."""


class ServerRefused(ServerError):
    """Komainu's server read what was sent and will not take it: sent again, it is refused again."""


class StorageError(KomainuError):
    """What must be remembered could not be written or read."""


class NotAllowed(KomainuError):
    """The person or node may not do this."""
