"""The hard rules between pods whatever the order in which kube-scheduler binds those that are on their way.

A pod is pinned only where its own rules hold, and those of pods that are pinned and not bound yet, whichever of the
others are there when kube-scheduler takes it: counted for the worst, pods on their way are there where they crowd, and
missing where they would have made up the least. Anti-affinity and host ports need none of this, as who may not be
together may not in any order; nor do spreads that honor node affinity, of which a pin leaves nothing to compare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from binpack.coming import Coming, is_minded
from binpack.company.crowd import Crowd
from binpack.company.roster import NO_DOMAIN, Bools, Ints, Roster
from binpack.company.rules import Judgement, Tally, all_keys, in_domains, tally
from fleet.company import Guest, Spread
from fleet.constraints import Toleration
from fleet.plan import Reason
from fleet.pod import Pod

_HUGE: Final = 2**40


@dataclass(frozen=True, slots=True, kw_only=True)
class Underway:
    """Those on their way, as a pod sees them that is none of them.

    Attributes:
        at: Per guest how many are on their way to which row.
        minded: Pods with a rule that kube-scheduler checks when it binds them, each with its row.
    """

    at: Mapping[Guest, Mapping[int, int]]
    minded: Sequence[tuple[Pod, int]]

    def rows(self, counts: Callable[[Guest], bool]) -> tuple[Ints, Ints]:
        """Return the rows to which guests of this kind are on their way, and how many, both (n,)."""
        found = Counter[int]()
        for guest, at in self.at.items():
            if counts(guest):
                found.update(at)
        return np.array(list(found.keys()), np.int64), np.array(list(found.values()), np.int64)


def underway(roster: Roster, parts: Iterable[Coming], pod: Pod) -> Underway | None:
    """Return who is on the way beside this pod, where it has to be looked at; None = no rule depends on the order."""
    known = [part for part in parts if len(part)]
    if not known or not (is_minded(pod.guest) or any(part.minded for part in known)):
        return None
    at: dict[Guest, Counter[int]] = {}
    for part in known:
        for guest, places in part.counted().items():
            there = at.setdefault(guest, Counter())
            for name, many in places.items():
                if (row := roster.rows.get(name, -1)) >= 0:
                    there[row] += many
    minded = [
        (other, roster.rows[node])
        for part in known
        for uid, other in part.minded.items()
        if (node := part.node_of(uid)) in roster.rows and node is not None
    ]
    return Underway(at=at, minded=minded)


def in_any_order(roster: Roster, crowd: Crowd, pod: Pod, way: Underway) -> Iterator[Judgement]:
    """Yield what each rule says of every node that depends on who of those on their way is bound first."""
    guest = pod.guest
    hard = tuple(spread for spread in guest.spreads if spread.is_hard)
    for spread in hard:
        if not spread.honors_affinity:
            yield _own_spread(roster, crowd, pod, spread, way)
    if guest.affinity:
        yield _own_affinity(roster, crowd, guest, way)
    for (other, _), (example, rows) in _alike(way.minded).items():
        for spread in other.spreads:
            if spread.is_hard and not spread.honors_affinity and _counts(other, spread, guest):
                yield _others_spread(roster, crowd, example, spread, rows, way)
        if other.affinity and crowd.names_itself(other) and crowd.is_named(other.affinity, guest):
            yield from _others_affinity(roster, crowd, other, rows, way)


def _alike(minded: Iterable[tuple[Pod, int]]) -> dict[tuple[Guest, tuple[Toleration, ...]], tuple[Pod, list[int]]]:
    """Return one pod of each kind, and the rows to which such pods are on their way."""
    found: dict[tuple[Guest, tuple[Toleration, ...]], tuple[Pod, list[int]]] = {}
    for pod, row in minded:
        found.setdefault((pod.guest, pod.constraints.tolerations), (pod, []))[1].append(row)
    return found


def _counts(guest: Guest, spread: Spread, other: Guest) -> bool:
    """Return True if a spread constraint of one guest counts the other."""
    selector = spread.selector
    if selector is None or selector.is_everything or other.is_leaving or other.namespace != guest.namespace:
        return False
    return selector.matches(dict(other.labels))


def _unsure(counted: Tally, guest: Guest, spread: Spread, way: Underway) -> Ints:
    """Return how many of those that a constraint counts are on their way, by domain, (domains + 1,)."""
    return counted.of(*way.rows(lambda other: _counts(guest, spread, other)))


def _least_elsewhere(counted: Tally, spread: Spread, unsure: Ints) -> Ints:
    """Return the fewest pods that any other domain may have, by domain, (domains + 1,); huge = no other one."""
    there = np.flatnonzero(counted.is_there)
    found = np.zeros(len(counted.counts), np.int64)
    if len(there) < spread.min_domains:
        return found
    sure = counted.counts[there] - unsure[there]
    ranked = np.argsort(sure, kind="stable")
    found[:] = sure[ranked[0]] if len(there) else _HUGE
    if len(there):
        found[there[ranked[0]]] = sure[ranked[1]] if len(there) > 1 else _HUGE
    return found


def _own_spread(roster: Roster, crowd: Crowd, pod: Pod, spread: Spread, way: Underway) -> Judgement:
    hard = tuple(one for one in pod.guest.spreads if one.is_hard)
    counted = tally(roster, crowd, pod, spread, all_keys(roster, hard))
    unsure = _unsure(counted, pod.guest, spread, way)
    elsewhere = _least_elsewhere(counted, spread, unsure)
    is_there = np.append(counted.is_there, False)
    least = np.where(is_there, np.minimum(counted.counts, elsewhere), elsewhere)
    of_row = counted.domains.of_row
    skew: Ints = counted.counts[of_row] + counted.own - least[of_row]
    has_key = of_row != NO_DOMAIN
    return Judgement(
        reason=Reason.TOPOLOGY_SPREAD,
        subject=f"topology spread over {spread.key} while {int(unsure.sum())} pods that it counts are not bound yet",
        allowed=has_key & (skew <= spread.max_skew),
        skew=np.where(has_key, skew, 0),
        most=spread.max_skew,
    )


def _others_spread(
    roster: Roster, crowd: Crowd, other: Pod, spread: Spread, rows: Sequence[int], way: Underway
) -> Judgement:
    """Forbid the domains to which pods are on their way whose spread would not bear one more there."""
    hard = tuple(one for one in other.guest.spreads if one.is_hard)
    counted = tally(roster, crowd, other, spread, all_keys(roster, hard))
    elsewhere = _least_elsewhere(counted, spread, _unsure(counted, other.guest, spread, way))
    of_row = counted.domains.of_row
    is_full = np.zeros(len(counted.counts), np.bool_)
    for row in set(rows):
        domain = of_row[row]
        if domain == NO_DOMAIN:
            continue
        beside = counted.counts[domain] - counted.own * counted.eligible[row] + 1
        least = min(beside, elsewhere[domain]) if counted.is_there[domain] else elsewhere[domain]
        is_full[domain] |= beside + counted.own - least > spread.max_skew
    is_full[NO_DOMAIN] = False
    return Judgement(
        reason=Reason.TOPOLOGY_SPREAD,
        subject=f"topology spread over {spread.key} of pods that are not bound yet",
        allowed=~(is_full[of_row] & counted.eligible),
    )


def _own_affinity(roster: Roster, crowd: Crowd, guest: Guest, way: Underway) -> Judgement:
    """Whom it must join has to be there already; or nobody is, and all those on their way go where it goes."""
    terms = guest.affinity
    sure, unsure = _members(crowd, guest, way)
    domains = [roster.domains(term.key) for term in terms]
    allowed: Bools = np.ones(roster.capacity, np.bool_)
    is_in_some = any((one.of_row[sure] != NO_DOMAIN).any() for one in domains)
    if is_in_some or not crowd.names_itself(guest):
        for one in domains:
            allowed &= in_domains(one, sure)
    else:
        counting = [row for row in unsure.tolist() if any(one.of_row[row] != NO_DOMAIN for one in domains)]
        for row in counting:
            for one in domains:
                allowed &= in_domains(one, np.array([row]))
    return Judgement(
        reason=Reason.POD_AFFINITY,
        subject=f"pod affinity over {' and '.join(sorted({term.key for term in terms}))} to pods not bound yet",
        allowed=allowed,
    )


def _others_affinity(
    roster: Roster, crowd: Crowd, other: Guest, rows: Iterable[int], way: Underway
) -> Iterator[Judgement]:
    """Keep company with the first of a kind, which may be anywhere only as long as no other one is elsewhere."""
    sure, _ = _members(crowd, other, way)
    domains = [roster.domains(term.key) for term in other.affinity]
    if any((one.of_row[sure] != NO_DOMAIN).any() for one in domains):
        return
    allowed: Bools = np.ones(roster.capacity, np.bool_)
    for row in set(rows):
        together = np.ones(roster.capacity, np.bool_)
        for one in domains:
            together &= in_domains(one, np.array([row]))
        allowed &= together
    # Where none of the keys is, nobody is joined.
    is_seen = np.zeros(roster.capacity, np.bool_)
    for one in domains:
        is_seen |= one.of_row != NO_DOMAIN
    yield Judgement(
        reason=Reason.POD_AFFINITY,
        subject="pod affinity of pods that are not bound yet",
        allowed=allowed | ~is_seen,
    )


def _members(crowd: Crowd, guest: Guest, way: Underway) -> tuple[Ints, Ints]:
    """Return the rows where a pod is that all terms of this one's affinity name: surely, and maybe."""
    rows, many = crowd.named(guest.affinity, is_hard=True).arrays()
    maybe, coming = way.rows(lambda other: crowd.is_named(guest.affinity, other))
    on_their_way = dict(zip(maybe.tolist(), coming.tolist(), strict=True))
    sure = [row for row, there in zip(rows.tolist(), many.tolist(), strict=True) if there > on_their_way.get(row, 0)]
    unsure = [row for row, count in on_their_way.items() if count > 0]
    return np.array(sure, np.int64), np.array(unsure, np.int64)
