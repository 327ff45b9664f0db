"""Random little clusters whose pods have rules about each other: labels, zones, spreads, affinities, ports.

Made of a seed by `random`, dense on purpose: most rules meet pods that they are about.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from binpack.state import NodeState
from fleet import labels
from fleet.company import Guest, HostPort, PodTerm, Selector, Spread
from fleet.constraints import NodeConstraints, NodeTerm, Requirement, Taint, Toleration
from fleet.pod import Pod
from tests.support.berths import pod, seat

ZONE = "topology.kubernetes.io/zone"
RACK = "rack"
KEYS = (ZONE, ZONE, labels.HOSTNAME, RACK)
APPS = ("web", "db")
TEAMS = {"default": {"kind": "open"}, "team": {"kind": "closed"}}


def is_app(*apps: str) -> Selector:
    """Return the selector of pods with one of these values of the label app."""
    return Selector(requirements=(Requirement(key="app", operator="In", values=apps),))


def a_selector(rng: Random) -> Selector | None:
    """Return a selector: mostly by app, now and then of nobody, of everybody, by the absence of a value."""
    match rng.randrange(10):
        case 0:
            return None
        case 1 | 2:
            return Selector()
        case 3:
            return Selector(requirements=(Requirement(key="app", operator="NotIn", values=("web",)),))
        case _:
            return is_app(rng.choice(APPS))


def a_term(rng: Random) -> PodTerm:
    """Return a term about pods of some namespaces."""
    by_label = rng.choice((None, None, None, Selector(), _kind("open"), _kind("closed")))
    names = rng.choice((("default",), ("default", "team"), ("team",)))
    if by_label is not None and rng.random() < 0.5:
        names = ()
    return PodTerm(key=rng.choice(KEYS), selector=a_selector(rng), namespaces=names, namespace_selector=by_label)


def a_spread(rng: Random) -> Spread:
    """Return a topology spread constraint, mostly hard."""
    return Spread(
        key=rng.choice(KEYS),
        max_skew=rng.choice((1, 1, 2)),
        is_hard=rng.random() < 0.8,
        selector=a_selector(rng),
        min_domains=rng.choice((1, 1, 2, 3)),
        honors_affinity=rng.random() < 0.5,
        honors_taints=rng.random() < 0.5,
    )


def a_port(rng: Random) -> HostPort:
    """Return a host port, one of few."""
    return HostPort(
        port=rng.choice((80, 80, 443)),
        protocol=rng.choice(("TCP", "TCP", "UDP")),
        ip=rng.choice(("", "10.0.0.1", "::1")),
    )


def a_guest(rng: Random, rules: float = 0.8) -> Guest:
    """Return a pod as rules see it; `rules` is how likely it has one of its own."""
    guest = Guest(
        namespace=rng.choice(("default", "default", "team")),
        labels=(("app", rng.choice(APPS)),) if rng.random() < 0.9 else (),
        owner=rng.choice(("", "rs-1", "rs-2")),
    )
    if rng.random() > rules:
        return guest
    many = rng.choice((1, 1, 2))
    match rng.randrange(5):
        case 0:
            return replace(guest, spreads=tuple(a_spread(rng) for _ in range(many)))
        case 1:
            return replace(guest, affinity=tuple(a_term(rng) for _ in range(many)))
        case 2:
            return replace(guest, anti=tuple(a_term(rng) for _ in range(many)))
        case 3:
            return replace(
                guest,
                preferred=tuple((rng.randint(1, 100), a_term(rng)) for _ in range(many)),
                repulsed=tuple((rng.randint(1, 100), a_term(rng)) for _ in range(many)),
            )
        case _:
            return replace(guest, ports=tuple({a_port(rng) for _ in range(many)}))


def a_world(rng: Random, most: int = 6) -> list[NodeState]:
    """Return nodes in zones and racks, some without such labels, with guests on them."""
    found: list[NodeState] = []
    for i in range(rng.randint(2, most)):
        node_labels = {labels.HOSTNAME: f"n{i}"}
        for key, values in ((ZONE, "abc"), (RACK, "xy")):
            if rng.random() < 0.85:
                node_labels[key] = rng.choice(values)
        state = seat(
            f"n{i}",
            cpu=rng.choice((1, 8, 8)),
            labels=node_labels,
            taints=rng.choice(((), (), (), (_TAINT,), (_SOFT,))),
            is_cordoned=rng.random() < 0.1,
        )
        there = [a_guest(rng, 0.3) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        leaving = [replace(guest, is_leaving=True) if rng.random() < 0.15 else guest for guest in there]
        found.append(replace(state, guests=tuple(sorted(leaving, key=hash))))
    return found


def newcomers(rng: Random, most: int = 5) -> list[Pod]:
    """Return a batch of pods with rules, some of them alike."""
    found: list[Pod] = []
    for i in range(rng.randint(1, most)):
        guest = found[-1].guest if found and rng.random() < 0.5 else a_guest(rng)
        one = pod(f"p{i}", cpu=rng.choice((0.1, 0.1, 2)), constraints=rng.choice(_CONSTRAINTS))
        found.append(replace(one, guest=guest, namespace=guest.namespace, labels=dict(guest.labels)))
    return found


def _kind(value: str) -> Selector:
    return Selector(requirements=(Requirement(key="kind", operator="In", values=(value,)),))


_TAINT = Taint(key="dedicated", value="x")
_SOFT = Taint(key="better-not", effect="PreferNoSchedule")
_CONSTRAINTS = (
    NodeConstraints(),
    NodeConstraints(),
    NodeConstraints(terms=(NodeTerm(labels=(Requirement(key=ZONE, operator="In", values=("a", "b")),)),)),
    NodeConstraints(tolerations=(Toleration(key="dedicated", operator="Exists"),)),
)
