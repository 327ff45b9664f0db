"""One look at one pool: what is seen goes in, the nodes as they are now and what to do come out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from warmpool.nodes.action import Action, Drawn, Forget, Lead, Outcome, Step
from warmpool.nodes.advance import advance
from warmpool.nodes.limits import StepTimes, limits_of
from warmpool.nodes.reading import WarmNode
from warmpool.nodes.reconcile import PoolPlan, carried, reconcile
from warmpool.nodes.seen import NodeSeen
from warmpool.providers.breaker import Breakers
from warmpool.providers.provider import Capabilities, Machine
from warmpool.values import NodeState, PoolNode, PoolSpec

# How long a Node that its provider does not name yet may belong to a machine that is told later.
_NAMELESS_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one look brought.

    Attributes:
        nodes: All nodes by the name of their machine.
        plan: Orders, and what is given up or taken back: in their minds already if `is_acting`.
        actions: To carry out.
        draws: Nodes that were drawn.
        leads_s: Lead times that were completed, order to warm.
        failures: Nodes that were given up, as they are now.
        times: Step and lead times with what this look brought.
        breakers: Circuit breakers with what it brought.
    """

    nodes: Mapping[str, PoolNode]
    plan: PoolPlan
    actions: tuple[Action, ...] = ()
    draws: tuple[Drawn, ...] = ()
    leads_s: tuple[float, ...] = ()
    failures: tuple[PoolNode, ...] = ()
    times: StepTimes = StepTimes()
    breakers: Breakers = Breakers()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """Machines and Nodes of one pool, joined.

    Attributes:
        seen: By the name of the machine, or of the Node where nothing else stands for it.
        renamed: Names under which a Node was known before its machine was, and the machine's.
    """

    seen: Mapping[str, NodeSeen] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)


def join(
    machines: Iterable[Machine],
    nodes: Sequence[WarmNode],
    known: Mapping[str, PoolNode],
    see: Callable[[Machine | None, WarmNode | None], NodeSeen],
    unseen_s: Callable[[str], float],
) -> Sighting:
    """Return what is seen of each machine.

    Args:
        machines: As the provider lists them.
        nodes: That say they are this pool's.
        known: Nodes as the last look left them.
        see: Returns what is seen of a machine and its Node.
        unseen_s: Returns for how long a Node has been there, counted here.
    """
    by_name = {node.metadata.name: node for node in nodes}
    seen: dict[str, NodeSeen] = {}
    renamed: dict[str, str] = {}
    taken: set[str] = set()
    for machine in machines:
        before = known.get(machine.name)
        name = machine.node_name or (before.node_name if before is not None else "")
        node = by_name.get(name)
        if node is not None:
            taken.add(name)
            if name != machine.name and name in known and machine.name not in known:
                renamed[name] = machine.name
        seen[machine.name] = see(machine, node)
    owners = {node.node_name: name for name, node in known.items() if node.node_name}
    for name, node in by_name.items():
        if name in taken:
            continue
        owner = owners.get(name, name)
        if owner in known or unseen_s(name) >= _NAMELESS_S:
            seen.setdefault(owner, see(None, node))
    return Sighting(seen=seen, renamed=renamed)


def turn(
    pool: PoolSpec,
    nodes: Mapping[str, PoolNode],
    sighting: Sighting,
    target: int,
    now_s: float,
    *,
    times: StepTimes,
    breakers: Breakers,
    capabilities: Capabilities,
    is_acting: bool,
    is_retiring: bool = False,
) -> Turn:
    """Look at a pool.

    Args:
        pool: What is wanted.
        nodes: As the last look left them.
        sighting: What is seen now.
        target: Warm unclaimed nodes wanted.
        now_s: Own monotonic clock.
        times: Step times that were measured.
        breakers: Offers that were refused.
        capabilities: Of the provider.
        is_acting: False: the plan is only told.
        is_retiring: The pool is being deleted.
    """
    known = {name: node for name, node in nodes.items() if name not in sighting.renamed}
    known |= {new: replace(nodes[old], name=new) for old, new in sighting.renamed.items()}
    limits = limits_of(pool, times)
    after: dict[str, PoolNode] = {}
    actions: list[Action] = []
    draws: list[Drawn] = []
    leads_s: list[float] = []
    for name in sorted({*known, *sighting.seen}):
        seen = sighting.seen.get(name, NodeSeen())
        node = known.get(name) or PoolNode.found(name, now_s, age_s=seen.age_s)
        node, wanted = advance(seen, node, pool, now_s, limits)
        is_forgotten = False
        for action in wanted:
            match action:
                case Outcome(why=None):
                    breakers = breakers.launched(pool.shape, action.offer, action.ordered_at_s)
                case Outcome(why=why) if why is not None:
                    breakers = breakers.failed(pool.shape, action.offer, action.ordered_at_s, now_s, why, action.detail)
                case Step():
                    times = times.step(action.state, action.duration_s)
                case Lead():
                    times = times.lead(action.duration_s)
                    leads_s.append(action.duration_s)
                case Drawn():
                    draws.append(action)
                case Forget():
                    is_forgotten = True
                case _:
                    actions.append(action)
        if not is_forgotten:
            after[name] = node
    failures = tuple(
        node
        for name, node in after.items()
        if node.state is NodeState.FAILED and (name not in known or known[name].state is not NodeState.FAILED)
    )
    plan = reconcile(
        pool,
        tuple(after.values()),
        target,
        now_s,
        breakers=breakers,
        limits=limits,
        capabilities=capabilities,
        is_retiring=is_retiring,
    )
    if is_acting:
        after = {node.name: node for node in carried(tuple(after.values()), plan)}
    return Turn(
        nodes=after,
        plan=plan,
        actions=tuple(actions) if is_acting else (),
        draws=tuple(draws),
        leads_s=tuple(leads_s),
        failures=failures,
        times=times,
        breakers=breakers,
    )
