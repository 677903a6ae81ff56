"""Observation: what we read. Finding: what we conclude from it."""

from __future__ import annotations

import enum

import msgspec

from komainu.core.instant import Instant
from komainu.core.names import ClusterName, JobId, NodeKey, NodeName
from komainu.core.verdict import FaultClass, Severity, Verdict

Scalar = str | int | float | bool | None


class ObservationKind(enum.StrEnum):
    """What sort of thing was read. The value is stable: it is stored and sent."""

    KERNEL_LINE = "kernel.line"
    """A kernel log record that means something to a detector. data: text, seq, boot_id, mono_us."""
    KERNEL_GAP = "kernel.gap"
    """Records were overwritten before we read them. data: lost, boot_id, first_seq, last_seq."""
    KERNEL_SOURCE = "kernel.source"
    """The kernel log could (not) be read. data: readable (bool), why."""
    CHECK = "check"
    """A node-side check ran. data: check, verdict, detail."""
    GATE = "gate"
    """The gate let a job in or refused it. data: see core/gate.py GateRecord fields."""
    AGENT = "agent"
    """The agent speaks of itself. data: event (started, stopping, spool_dropped, spool_refused), and
    what of it; or the server of it: events enrolled_again and findings_not_kept (count)."""
    SCHEDULER = "scheduler"
    """The scheduler's view of a node changed. data: state, flags, reason, reason_by."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was read, once.

    `id` is made from the source's own coordinates (boot id + kernel sequence number, say), so that
    the same record read twice is the same observation.
    """

    id: str
    cluster: ClusterName
    node: NodeName
    kind: ObservationKind
    at: Instant
    """When it happened, aware UTC."""
    data: dict[str, Scalar] = {}
    debug: bool = False
    """Debug data is the only data a full spool may drop (and it says so when it does): kernel lines
    that no finding rests on."""

    @property
    def key(self) -> NodeKey:
        return NodeKey(self.cluster, self.node)


class Component(msgspec.Struct, frozen=True, order=True):
    """A part of a node. `kind` is a path such as `gpu`, `gpu/nvlink5`, `nic/optic`; `id` names the
    individual (PCI address `0000:41:00`, GPU UUID, device name), empty when the line does not say.
    """

    kind: str
    id: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.id}" if self.id else self.kind


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of what a finding rests on. `text` may hold tenant-controlled characters: escape it."""

    observation: str
    at: Instant
    text: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What we conclude: this component of this node has this fault, graded so, because of this.

    NVIDIA's advice, the driver's own verdict and our class are kept apart (decision 006).
    """

    id: str
    """`stable_id(node, code, component, first observation)`: the same conclusion is the same id."""
    cluster: ClusterName
    node: NodeName
    code: str
    """Stable and documented: `GPU-XID-79`; docs/runbooks/<code family>.md explains it."""
    component: Component
    severity: Severity
    fault_class: FaultClass
    verdict: Verdict = Verdict.FAULT
    """FAULT, or UNKNOWN when the finding is that something could not be looked at."""
    summary: str
    """One line for a person, made from code and catalogue, never from the log line's free text."""
    at: Instant
    """First evidence, aware UTC."""
    evidence: tuple[Evidence, ...] = ()
    cause: str | None = None
    """Id of the finding this one is part of (48 → 63 → 94 is one incident), None for a cause."""
    vendor_action: str | None = None
    """NVIDIA's immediate action, verbatim from its catalogue."""
    driver_action: int | None = None
    """The number of Xid 154, where the driver has spoken."""
    job: JobId | None = None
    """The job on the node at that time, as far as the gate knows."""
    confidence: float = 1.0
    catalogue: str = ""
    """Name and version of the catalogue that graded it."""
    fields: dict[str, Scalar] = {}
    """What the line said, parsed: pci, pid, xid, gpc, link …"""

    @property
    def key(self) -> NodeKey:
        return NodeKey(self.cluster, self.node)

    @property
    def condemns(self) -> bool:
        """Whether, taken alone, this finding keeps the next job off the node."""
        return self.verdict is Verdict.FAULT and self.severity >= Severity.DEGRADED
