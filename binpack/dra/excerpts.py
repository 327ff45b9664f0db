"""What is published about devices and claims, cut down to what the verifier needs for a few seats. Pure.

The verifier adds up what all claims that it is given hold, and there may be ten thousands of them in a cluster, while
seats concern the pools that their own devices are of, and the cards of their own nodes. What is told here of which
claim is in which pool is read from the claims, never from the books that the chooser keeps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from binpack.dra.check import Published
from binpack.dra.pools import PoolId
from fleet import labels
from fleet.dra import DeviceSlice, ResourceClaim
from fleet.pod import Berth, Pod


class Excerpts:
    """Cuts one state of what is published; it is gone through once, and only where anything of it is needed.

    Args:
        published: All there is.
    """

    def __init__(self, published: Published) -> None:
        self._all = published

    def about(self, nodes: Collection[str], seats: Sequence[tuple[Pod, Berth]]) -> Published:
        """Return what says as much as the whole does about these seats and the cards of these nodes.

        Args:
            nodes: Of the seats.
            seats: (pod, berth) of one unit.
        """
        choices = [choice for _, berth in seats for choice in berth.choices]
        own = {(pod.namespace, one.claim) for pod, _ in seats for one in pod.resource_claims if one.claim}
        pools = dict.fromkeys(result.id[:2] for choice in choices for result in choice.allocation.results)
        pools |= dict.fromkeys(pool for node in nodes for pool in self._card_pools.get(node, ()))
        claims: dict[str, ResourceClaim] = {}
        if pools or own:
            found = [claim for pool in pools for claim in self._claims_in.get(pool, ())]
            found += [self._claim_named[name] for name in own if name in self._claim_named]
            found += [self._all.claims[one.claim_uid] for one in choices if one.claim_uid in self._all.claims]
            claims = {claim.uid: claim for claim in found}
        return replace(
            self._all,
            claims=claims,
            slices=tuple(one for pool in pools for one in self._slices_of.get(pool, ())),
            kept={uid: self._all.kept[uid] for pool in pools for uid in self._kept_in.get(pool, ())},
        )

    @cached_property
    def _slices_of(self) -> dict[PoolId, list[DeviceSlice]]:
        found: dict[PoolId, list[DeviceSlice]] = {}
        for one in self._all.slices:
            found.setdefault((one.driver, one.pool), []).append(one)
        return found

    @cached_property
    def _card_pools(self) -> dict[str, set[PoolId]]:
        """Return by node the pools with GPUs that pods may hold by their records as well."""
        found: dict[str, set[PoolId]] = {}
        for pool, slices in self._slices_of.items():
            if pool[0].startswith(labels.DRA_GPU_DRIVERS):
                for node in _named(slices):
                    found.setdefault(node, set()).add(pool)
        return found

    @cached_property
    def _claims_in(self) -> dict[PoolId, list[ResourceClaim]]:
        found: dict[PoolId, list[ResourceClaim]] = {}
        for claim in self._all.claims.values():
            if claim.allocation is not None:
                for pool in {result.id[:2] for result in claim.allocation.results}:
                    found.setdefault(pool, []).append(claim)
        return found

    @cached_property
    def _claim_named(self) -> dict[tuple[str, str], ResourceClaim]:
        return {(claim.namespace, claim.name): claim for claim in self._all.claims.values()}

    @cached_property
    def _kept_in(self) -> dict[PoolId, list[str]]:
        found: dict[PoolId, list[str]] = {}
        for uid, choices in self._all.kept.items():
            for pool in {result.id[:2] for choice in choices for result in choice.allocation.results}:
                found.setdefault(pool, []).append(uid)
        return found


def _named(slices: Iterable[DeviceSlice]) -> set[str]:
    """Return the nodes that slices or their devices name."""
    wheres = (where for one in slices for where in (one.where, *(device.where for device in one.devices)))
    return {where.node for where in wheres if where is not None and where.node}
