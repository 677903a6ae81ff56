"""What the server says of its configuration before it serves."""

from __future__ import annotations

from komainu.core.policy import GuardPolicy, Policy
from komainu.server.run import unknown_codes


def test_codes_that_no_finding_can_have_are_named() -> None:
    policy = Policy(
        severity={"GPU-XID-79": "watch", "GPU-XID79": "watch", "NVME-LOST": "fatal"},
        guard=GuardPolicy(fatal_when_tripped=("GPU-XID-4711", "GPU-OFF-BUSS")),
    )
    assert unknown_codes(policy) == ["GPU-OFF-BUSS", "GPU-XID79"]
    assert unknown_codes(Policy()) == []
