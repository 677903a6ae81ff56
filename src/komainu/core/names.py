"""Names. Every name is qualified by its cluster, since one server watches many clusters."""

from __future__ import annotations

import hashlib
import re
from typing import NewType

import msgspec

from komainu.core.errors import InputError

ClusterName = NewType("ClusterName", str)
NodeName = NewType("NodeName", str)
JobId = NewType("JobId", str)
"""The scheduler's own spelling: `123`, `123_4` (array), `123+1` (heterogeneous)."""

# Hostnames and Slurm cluster names; the first character keeps `-rf` from reading as an option.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")


class NodeKey(msgspec.Struct, frozen=True, order=True):
    """One node of one cluster. `str(key)` is `cluster/node`."""

    cluster: ClusterName
    node: NodeName

    def __str__(self) -> str:
        return f"{self.cluster}/{self.node}"


def cluster_name(text: str) -> ClusterName:
    """Check a cluster's name at the edge, where it comes from outside."""
    return ClusterName(_checked("cluster name", text))


def node_name(text: str) -> NodeName:
    """Check a node's name at the edge, where it comes from outside."""
    return NodeName(_checked("node name", text))


def account_name(text: str) -> str:
    """Check an account's name: spelt like a host, since it stands in reasons and in logs."""
    if not _NAME.fullmatch(text):
        raise InputError(
            f"account name {text[:80]!r} is not usable: expected at most 128 letters, digits, "
            "'_', '.' or '-'"
        )
    return text


def _checked(what: str, text: str) -> str:
    if not _NAME.fullmatch(text):
        raise InputError(
            f"{what} {text[:80]!r} is not usable: found characters other than letters, digits, "
            f"'_', '.', '-' (or none, or over 128). Use the name the scheduler uses."
        )
    return text


def stable_id(*parts: str, prefix: str) -> str:
    """An id that is the same whenever it is made from the same parts, so repeats are seen.

    80 bits of BLAKE2b: among 10^9 ids the chance of any clash is below 10^-6.
    """
    digest = hashlib.blake2b("\x1f".join(parts).encode("utf-8", "surrogatepass"), digest_size=10)
    return f"{prefix}{digest.hexdigest()}"
