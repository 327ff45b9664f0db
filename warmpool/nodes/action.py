"""What one node's state machine wants done. Plain values: a shell carries them out in their order, and may fail to.

Nothing is remembered of an action that was asked for, but for releases: what did not happen is asked for again at the
next tick, because what is wanted follows from what is seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleet.constraints import Taint
from warmpool.values import NodeState, Offer, Why


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Write taints, cordon and annotations of a Node, in one patch that tests what it relies on (`mark_patch`).

    Attributes:
        node: Name of the Node.
        uid: Of it.
        why: Of the change.
        added: Taints to add.
        removed: Positions and keys of taints to remove, as read. The others stay as they are, to the letter.
        has_taints: Whether the Node has any taint.
        unschedulable: Whether to cordon; None = as it is.
        annotations: To set, or with None to remove; sorted by name.
        claim_read: The claim's text as read, which must still be there; "" = there must be none.
        has_annotations: Whether the Node has any.
    """

    node: str
    uid: str
    why: Why
    added: tuple[Taint, ...] = ()
    removed: tuple[tuple[int, str], ...] = ()
    has_taints: bool = True
    unschedulable: bool | None = None
    annotations: tuple[tuple[str, str | None], ...] = ()
    claim_read: str = ""
    has_annotations: bool = True

    @property
    def is_empty(self) -> bool:
        """Return True if nothing is to be changed."""
        return not (self.added or self.removed or self.annotations) and self.unschedulable is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Write the condition berthmaster.dev/Warm of a Node."""

    node: str
    uid: str
    is_warm: bool
    why: Why
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """Have a pod of our own pull the pool's images and models on a node, and hold them there.

    Attributes:
        missing: What is missing now; empty = all is there but nothing holds it.
        is_again: A pod stands there that no longer does its work: replace it.
    """

    node: str
    uid: str
    missing: tuple[str, ...] = ()
    is_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclaim:
    """Remove exactly this claim (`fleet.claim.unclaim_patch`)."""

    node: str
    uid: str
    text: str
    why: Why


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    """Move these pods off a node whose work fits elsewhere; one eviction at a time, as disruption budgets allow."""

    node: str
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Give the machine up.

    Attributes:
        name: Of the machine.
        node: Of its Node, "" = there is none.
        must_look: List the pods of the node once more, from the API itself, and leave it if there is one.
    """

    name: str
    node: str
    why: Why
    must_look: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """Drop it from the books: nothing of it is left."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Tell the circuit breaker how an order went; once per order, and once more if it fails later.

    Attributes:
        why: Why it failed; None = it was launched.
    """

    offer: Offer
    ordered_at_s: float
    why: Why | None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step was taken, or given up: how long it lasted."""

    state: NodeState
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """A node that this process ordered was proven warm for the first time."""

    offer: Offer
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The node was drawn: a firm claim came, or pods without one.

    Attributes:
        pods: UIDs it was drawn for: each is a draw.
        was_warm: Whether it had been proven warm: then they are hits.
    """

    node: str
    pods: tuple[str, ...]
    was_warm: bool


Action = Mark | Tell | Pull | Unclaim | Evict | Release | Forget | Outcome | Step | Lead | Drawn
