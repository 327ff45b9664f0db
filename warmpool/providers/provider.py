"""The protocol of whoever makes nodes, and the values that it speaks in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from warmpool.values import Offer, PoolSpec, ProviderKind


class MachinePhase(StrEnum):
    """How far the provider says that a machine is. What it does not know yet is ORDERED."""

    ORDERED = "ordered"
    LAUNCHED = "launched"
    REGISTERED = "registered"
    FAILED = "failed"


class Refusal(StrEnum):
    """Why an order was not carried out; a shortage lasts, so it is remembered per offer."""

    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    QUOTA = "Quota"
    INVALID = "Invalid"
    UNAVAILABLE = "Unavailable"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One ordered machine as its provider shows it.

    Attributes:
        name: Of the order, or of the Node where nothing else stands for it; unique within its provider.
        pool: Name of the pool that it was ordered for.
        node_name: The Node it became; "" = none yet.
        phase: How far it is.
        refusal: Why it failed; None = it did not.
        detail: The provider's words on that.
        offer: What it was ordered as.
        shape: Fingerprint of the shape it was ordered as; "" = not told.
        uid: Of the object behind it.
        is_deleting: It is on its way out, whoever asked for that.
        is_placeholder: Nothing but a count stands behind it: that it goes away is no failure.
    """

    name: str
    pool: str
    node_name: str = ""
    phase: MachinePhase = MachinePhase.ORDERED
    refusal: Refusal | None = None
    detail: str = ""
    offer: Offer = Offer()
    shape: str = ""
    uid: str = ""
    is_deleting: bool = False
    is_placeholder: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a provider can promise; what it cannot is not asked of it.

    Attributes:
        can_order: Makes one node per order. False: it is told a number (`resize`), or nothing at all.
        is_counted: Is told how many unclaimed nodes to keep, and refills by itself.
        can_release_exactly: The node that is named is the one that goes.
        tells_failure: Says why an order failed; otherwise it just vanishes, or hangs until we time it out.
        taints_at_birth: Nodes register with the pool's taints; otherwise there is a moment without them.
        is_atomic: An order for several gives all or none.
        has_standby: Keeps stopped machines that start faster than new ones.
    """

    can_order: bool
    is_counted: bool = False
    can_release_exactly: bool = False
    tells_failure: bool = False
    taints_at_birth: bool = False
    is_atomic: bool = False
    has_standby: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of an order at once; more may come to light later (`list`).

    Attributes:
        names: Machines that now exist for it.
        refusal: Why there are fewer than were ordered; None = all were taken.
        detail: The provider's words on that.
    """

    names: tuple[str, ...] = ()
    refusal: Refusal | None = None
    detail: str = ""


class Provider(Protocol):
    """Makes and removes nodes of all pools of its kind. Errors of the API are raised (fleet.errors.ApiError)."""

    @property
    def kind(self) -> ProviderKind:
        """Return which one it is."""
        ...

    def capabilities(self) -> Capabilities:
        """Return what it can promise."""
        ...

    async def provision(self, pool: PoolSpec, offer: Offer, count: int, key: str) -> Receipt:
        """Order `count` nodes of the pool's shape. The same key again is the same order: nothing is ordered twice."""
        ...

    async def resize(self, pool: PoolSpec, count: int) -> None:
        """Tell the number of unclaimed nodes to keep; only where `is_counted`."""
        ...

    async def list(self, pools: Sequence[PoolSpec]) -> tuple[Machine, ...]:
        """Return every machine of these pools (a quorum read), failed ones while they are still to be seen."""
        ...

    async def state(self, pool: PoolSpec, name: str) -> Machine | None:
        """Return one machine; None = there is none."""
        ...

    async def release(self, pool: PoolSpec, machine: Machine) -> None:
        """Give the machine up. Asking again does no harm; one that is gone is no error."""
        ...

    async def turn(self) -> None:
        """Do what is due by now; only a provider that plays the cloud itself has anything to do."""
        ...


class OrdersOnly:
    """What providers share that are given orders, and leave it to a real cloud to carry them out."""

    async def resize(self, pool: PoolSpec, count: int) -> None:
        """Raise: see `Capabilities.is_counted`."""
        raise TypeError(f"pool {pool.name}: this provider takes orders, not a number ({count})")

    async def turn(self) -> None:
        """Leave time to the cloud."""
        return


def machine_names(pool: str, key: str, count: int) -> tuple[str, ...]:
    """Return the names of an order's machines: the same for the same key, so that an order can be repeated."""
    return tuple(f"{pool}-{key}-{index}" for index in range(count))
