"""Proposals for cutting cards, as a person reads them and as a machine does. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from binpack.mig.proposals import Proposal


def as_json(proposal: Proposal) -> dict[str, Any]:
    """Return a proposal for `--json`."""
    return {
        "node": proposal.node,
        "device": proposal.device,
        "instances": [f"{one.profile}@{one.start}" for one in proposal.partitions],
        "pods": list(proposal.pods),
        "turns_mode_on": proposal.turns_mode_on,
        "commands": list(proposal.commands),
    }


def lines(proposal: Proposal) -> Iterator[str]:
    """Yield what to do, line by line."""
    mode = " (not in MIG mode now: whole devices and shares lose it)" if proposal.turns_mode_on else ""
    yield (
        f"device {proposal.device} of {proposal.node} is empty{mode}; cut like this it could serve "
        f"{', '.join(dict.fromkeys(proposal.pods))}:"
    )
    yield from (f"  {command}" for command in proposal.commands)
