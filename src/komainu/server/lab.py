"""What a make-believe cluster offers its visitors: breaking something, and mending it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from komainu.core.errors import InputError
from komainu.core.names import ClusterName, NodeName, cluster_name, node_name
from komainu.ports import Asked, Desk, Page

_MAX_GPU = 255


class OfferedFault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault a visitor can choose."""

    id: str
    title: str
    text: str = ""
    """What it leads to, where that is not plain from the title."""


class LabControls(Protocol):
    """The make-believe cluster's strings. Raises KeyError for a node or fault it does not have."""

    def faults(self) -> Sequence[OfferedFault]: ...

    async def inject(self, cluster: ClusterName, node: NodeName, gpu: int, fault: str) -> None:
        """Let `fault` strike that GPU now."""
        ...

    async def repair(self, cluster: ClusterName, node: NodeName) -> None:
        """Let a technician repair all that is broken on that node now."""
        ...


class Strike(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cluster: str
    node: str
    fault: str
    gpu: int = 0


class Mend(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cluster: str
    node: str


_strike = msgspec.json.Decoder(Strike).decode
_mend = msgspec.json.Decoder(Mend).decode


def pages(lab: LabControls) -> tuple[Page, ...]:
    """The lab's routes; a server of real clusters has none of them."""

    def faults(desk: Desk, asked: Asked) -> list[OfferedFault]:
        del desk, asked
        return list(lab.faults())

    async def inject(desk: Desk, asked: Asked) -> None:
        del desk
        try:
            strike = _strike(asked.body)
        except msgspec.DecodeError as error:
            raise InputError(f"the request cannot be read: {error}") from error
        if not 0 <= strike.gpu <= _MAX_GPU:
            raise InputError(f"gpu={strike.gpu} cannot be struck: expected 0 to {_MAX_GPU}")
        await lab.inject(
            cluster_name(strike.cluster), node_name(strike.node), strike.gpu, strike.fault
        )

    async def repair(desk: Desk, asked: Asked) -> None:
        del desk
        try:
            mend = _mend(asked.body)
        except msgspec.DecodeError as error:
            raise InputError(f"the request cannot be read: {error}") from error
        await lab.repair(cluster_name(mend.cluster), node_name(mend.node))

    return (
        Page(method="GET", path="/lab/faults", answer=faults),
        Page(method="POST", path="/lab/inject", answer=inject),
        Page(method="POST", path="/lab/repair", answer=repair),
    )
