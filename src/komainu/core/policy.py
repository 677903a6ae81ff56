"""The site's policy as the rooms read it. It comes from the `[policy]` part of komainu.toml.

Policy is data with a version; every decision records the version it was made under.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Annotated, Literal

import msgspec

from komainu.core.node import NodePolicy
from komainu.core.verdict import Severity

Grade = Literal["info", "watch", "degraded", "fatal"]
_GRADES: dict[Grade, Severity] = {
    "info": Severity.INFO,
    "watch": Severity.WATCH,
    "degraded": Severity.DEGRADED,
    "fatal": Severity.FATAL,
}
PositiveInt = Annotated[int, msgspec.Meta(ge=1)]


class GuardPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many nodes Komainu may take out. A release never counts and is never held back."""

    max_nodes: PositiveInt = 8
    """At most so many nodes out by our doing at one time, per cluster."""
    max_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.1
    """At most this share of the cluster's nodes out by our doing at one time (at least one node)."""
    window_s: PositiveInt = 600
    """Window over which new removals are counted."""
    max_in_window: PositiveInt = 5
    """At most so many new removals per window."""
    fatal_when_tripped: tuple[str, ...] = ()
    """Finding codes that gates refuse even while the guard has tripped (none: the guard is final)."""

    def room(self, nodes_total: int) -> int:
        """How many nodes may be out at one time in a cluster of `nodes_total`."""
        return min(self.max_nodes, max(1, int(self.max_share * nodes_total)))


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do about findings."""

    severity: dict[str, Grade] = {}
    """Finding code → grade, overriding the catalogue. Example: `"GPU-XID-63" = "watch"`."""
    advise_only: bool = False
    """Say what would be done, and do nothing (the way to try Komainu on a live cluster)."""
    release_held_jobs: bool = True
    """Release a job that Slurm held because our gate refused it on a bad node."""
    decision_expires_s: PositiveInt = 3600
    """A decision not carried out after so long is dropped, never replayed."""
    node_unseen_s: PositiveInt = 30
    """A node whose agent has been silent for so long is shown UNKNOWN."""
    stale: Literal["open", "closed"] = "open"
    """Gate on a stale, missing or unknown verdict. `open`: a bad agent release drains no cluster."""
    checking: Literal["open", "wait"] = "open"
    """Gate while the post-job check still runs."""
    check_s: PositiveInt = 10
    """Bound on the post-job check, seconds."""
    confirm_s: PositiveInt = 3
    """How long a node's own fault waits for the server before the node decides alone, seconds."""
    ttl_s: PositiveInt = 5
    """Age at which a verdict is stale, seconds; it is renewed every second."""
    guard: GuardPolicy = GuardPolicy()

    @property
    def version(self) -> str:
        """Twelve hex digits of the policy's content: the same policy has the same version."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:12]

    @property
    def expires_after(self) -> timedelta:
        return timedelta(seconds=self.decision_expires_s)

    def for_node(self) -> NodePolicy:
        """The part a node needs. Under advise only nothing is done, so no gate refuses the unsure."""
        return NodePolicy(
            version=self.version,
            severity={code: _GRADES[grade] for code, grade in self.severity.items()},
            stale="open" if self.advise_only else self.stale,
            checking=self.checking,
            check_s=self.check_s,
            confirm_s=self.confirm_s,
            ttl_s=self.ttl_s,
        )
