"""The kernel log → observations. Only the kernel's own records, and only those that mean something.

A record written from user space never has facility 0 (the kernel forces it to LOG_USER, printk.c
devkmsg_write), so one number keeps every forged line out; what remains is read from its first character.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache

from komainu.core.names import NodeKey, stable_id
from komainu.core.observation import Observation, ObservationKind
from komainu.health.detect.lines import ERROR_WORD, HEADS
from komainu.health.detect.pasted import Writer, unwrap
from komainu.health.detect.reading import shipped
from komainu.ports import KernelRecord

KERNEL = 0
"""The facility of the kernel itself."""


def observation_of(
    record: KernelRecord, *, key: NodeKey, boot_id: str, at: datetime
) -> Observation | None:
    """What a kernel record tells, or None: written by a program, or meaningless to us."""
    if record.facility != KERNEL or shipped()(record.text) is None:
        return None
    return _observation(record, key, boot_id, at, _hashed(key, boot_id))


def _observation(
    record: KernelRecord, key: NodeKey, boot_id: str, at: datetime, hashed: hashlib.blake2b
) -> Observation:
    # The id is `stable_id(cluster, node, boot_id, seq, prefix="O-")`, with all but the number hashed once.
    digest = hashed.copy()
    digest.update(b"%d" % record.seq)
    return Observation(
        id=f"O-{digest.hexdigest()}",
        cluster=key.cluster,
        node=key.node,
        kind=ObservationKind.KERNEL_LINE,
        at=at,
        data={
            "text": record.text,
            "seq": record.seq,
            "boot_id": boot_id,
            "mono_us": record.mono_us,
        },
    )


def observations_of(
    records: Iterable[KernelRecord],
    *,
    key: NodeKey,
    boot_id: str,
    booted: datetime,
    now: datetime,
) -> list[Observation]:
    """`observation_of` for many records: what the agent reads its log with, one line or a flood.

    Their time is reckoned from `booted`, and is never after `now`: the two clocks drift apart.
    """
    read, hashed = shipped(), _hashed(key, boot_id)
    found: list[Observation] = []
    for record in records:
        text = record.text
        # The reader's own first test, before any call: nine of ten records stop here.
        if (text[:4] in HEADS or ERROR_WORD in text) and record.facility == KERNEL and read(text):
            at = booted + timedelta(0, 0, record.mono_us)  # by position: half the cost
            found.append(_observation(record, key, boot_id, min(at, now), hashed))
    return found


def observation_of_previous(
    text: str, *, key: NodeKey, boot_id_hint: str, at: datetime
) -> Observation | None:
    """One of the last lines of the boot before this one, as journald or pstore kept it.

    These lines have no sequence number, so the id comes from the line itself (its time stamp included):
    reading it again after the next restart gives the same observation.
    """
    pasted = unwrap(text)
    if pasted is None or pasted.writer is not Writer.KERNEL or shipped()(pasted.text) is None:
        return None
    return Observation(
        id=stable_id(key.cluster, key.node, "previous", text, prefix="O-"),
        cluster=key.cluster,
        node=key.node,
        kind=ObservationKind.KERNEL_LINE,
        at=at,
        data={"text": pasted.text, "seq": None, "boot_id": boot_id_hint, "mono_us": None},
    )


@lru_cache(1024)
def _hashed(key: NodeKey, boot_id: str) -> hashlib.blake2b:
    start = f"{key.cluster}\x1f{key.node}\x1f{boot_id}\x1f"
    return hashlib.blake2b(start.encode("utf-8", "surrogatepass"), digest_size=10)
