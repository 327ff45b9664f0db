"""A circuit breaker per shape and offer: a refusal of the same offer is information that lasts.

One shortage closes an offer for 30 s, and for twice as long each time that a probe is refused as well, up to a quarter
of an hour; then one probe at a time is let through, and a launch opens it again (Azure/karpenter-provider-azure#1854,
kaito-project/kaito#2295). Pure: values in, values out.

Source of the pattern: Nygard, "Release It!", 2nd ed., 5.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from warmpool.values import Offer, Shape, Why

FIRST_PAUSE_S = 30.0
LONGEST_PAUSE_S = 900.0
_PLENTY = 2**31

Key = tuple[str, Offer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """One offer that was refused.

    Attributes:
        failures: Refusals in a row; orders that were under way together count once.
        tripped_at_s: When the last one came.
        retry_at_s: Before this, nothing is ordered.
        probed_at_s: When the probe was let through; None = it has not been.
        why: What the last one said.
        detail: In the provider's words.
    """

    failures: int
    tripped_at_s: float
    retry_at_s: float
    why: Why
    probed_at_s: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakers:
    """Every offer that was refused and has not been served since."""

    tripped: Mapping[Key, Breaker] = field(default_factory=dict)

    def of(self, shape: Shape, offer: Offer) -> Breaker | None:
        """Return the breaker of an offer; None = nothing speaks against it."""
        return self.tripped.get((shape.fingerprint, offer))

    def failed(self, shape: Shape, offer: Offer, ordered_at_s: float, now_s: float, why: Why, detail: str) -> Breakers:
        """Return the breakers after an order failed that was placed at `ordered_at_s`."""
        old = self.of(shape, offer)
        if old is not None and ordered_at_s < old.tripped_at_s:
            return self  # it was under way when the offer was refused: the same answer, not a new one
        failures = (old.failures if old is not None else 0) + 1
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 30))
        tripped = Breaker(failures=failures, tripped_at_s=now_s, retry_at_s=now_s + pause_s, why=why, detail=detail)
        return Breakers(tripped={**self.tripped, (shape.fingerprint, offer): tripped})

    def launched(self, shape: Shape, offer: Offer, ordered_at_s: float) -> Breakers:
        """Return the breakers after an order was served."""
        old = self.of(shape, offer)
        if old is None or ordered_at_s < old.tripped_at_s:
            return self
        return Breakers(tripped={key: kept for key, kept in self.tripped.items() if kept is not old})

    def ordered(self, shape: Shape, offer: Offer, now_s: float) -> Breakers:
        """Return the breakers after an order was placed: where the offer was refused before, it is the probe."""
        old = self.of(shape, offer)
        if old is None:
            return self
        return Breakers(tripped={**self.tripped, (shape.fingerprint, offer): replace(old, probed_at_s=now_s)})

    def allowance(self, shape: Shape, offer: Offer, now_s: float) -> int:
        """Return how many nodes may be ordered of an offer now: many, one probe, or none."""
        breaker = self.of(shape, offer)
        if breaker is None:
            return _PLENTY
        if now_s < breaker.retry_at_s:
            return 0
        # A probe of which nothing is heard (withdrawn, say) does not close the offer for ever.
        is_out = breaker.probed_at_s is not None and now_s < breaker.probed_at_s + LONGEST_PAUSE_S
        return 0 if is_out else 1

    def spread(self, shape: Shape, count: int, now_s: float) -> tuple[tuple[Offer, int], ...]:
        """Return what to order where: the first offer in the person's order, spilling over to the next."""
        orders: list[tuple[Offer, int]] = []
        for offer in shape.offers:
            taken = min(count, self.allowance(shape, offer, now_s))
            if taken > 0:
                orders.append((offer, taken))
                count -= taken
        return tuple(orders)

    def is_available(self, shape: Shape) -> bool:
        """Return True if at least one offer of the shape was not refused lately."""
        return any(self.of(shape, offer) is None for offer in shape.offers)
