"""The devices of the cluster as drivers publish them: slices joined to pools, and what each node can reach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from binpack.dra.selectors import Selectors, Trouble
from fleet.dra import DeviceId, DeviceSlice, DeviceTaint, PoolDevice, TaintRule, Where

PoolId = tuple[str, str]
CounterTotals = Mapping[str, Mapping[str, int]]
_NOWHERE = Where()
_MOST_JUDGED = 256  # expressions remembered by each device


class Cell:
    """One device in its pool.

    Attributes:
        id: Driver, pool, name.
        pool: Whose counters it draws from.
        where: From which nodes it is reached.
        taints: Its own and those of rules.
    """

    __slots__ = ("_judged", "device", "id", "pool", "taints", "where")

    def __init__(self, pool: Pool, device: PoolDevice, where: Where, taints: tuple[DeviceTaint, ...]) -> None:
        self.id: DeviceId = (*pool.id, device.name)
        self.pool = pool
        self.device = device
        self.where = where
        self.taints = taints
        self._judged: dict[str, bool | Trouble] = {}

    def matches(self, expression: str, selectors: Selectors) -> bool | Trouble:
        """Return whether a selector holds, judged once."""
        found = self._judged.get(expression)
        if found is None:
            if len(self._judged) >= _MOST_JUDGED:
                self._judged.clear()
            found = self._judged[expression] = selectors.judge(expression, self.id[0], self.device)
        return found


@dataclass(slots=True)
class Pool:
    """The newest generation of a pool.

    Attributes:
        id: Driver and name.
        cells: Its devices in order of slice and place; none while `problem` holds.
        counters: What each counter set has, counters by name.
        problem: Why none of its devices may be given; "" = fine.
        nodes: The only nodes that reach it; None = nodes are chosen by labels.
    """

    id: PoolId
    cells: tuple[Cell, ...] = ()
    counters: CounterTotals = ()  # type: ignore[assignment]
    problem: str = ""
    nodes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Reach:
    """What one node reaches.

    Attributes:
        cells: Devices of sound pools, by driver, pool, slice and place.
        problems: Why other pools give nothing here.
    """

    cells: tuple[Cell, ...] = ()
    problems: tuple[str, ...] = ()


class Pools:
    """All pools, moved by single slices, rules and nodes in any order."""

    def __init__(self) -> None:
        self._slices: dict[PoolId, dict[str, DeviceSlice]] = {}
        self._rules: dict[str, TaintRule] = {}
        self._pools: dict[PoolId, Pool] = {}
        self._local: dict[str, set[PoolId]] = {}
        self._wide: set[PoolId] = set()
        self._labels: dict[str, Mapping[str, str]] = {}
        self._reach: dict[str, Reach] = {}

    def set_slice(self, new: DeviceSlice) -> frozenset[str] | None:
        """Take a new or changed slice; return the nodes that it concerns, None = any."""
        of_pool = self._slices.setdefault((new.driver, new.pool), {})
        of_pool[new.name] = new
        return self._rebuild((new.driver, new.pool))

    def remove_slice(self, name: str, pool_id: PoolId) -> frozenset[str] | None:
        """Drop a slice; return the nodes that it concerned, None = any."""
        of_pool = self._slices.get(pool_id, {})
        of_pool.pop(name, None)
        return self._rebuild(pool_id)

    def set_rule(self, rule: TaintRule) -> None:
        """Take a new or changed rule; every pool is made anew."""
        if self._rules.get(rule.name) != rule:
            self._rules[rule.name] = rule
            self._rebuild_all()

    def remove_rule(self, name: str) -> None:
        """Drop a rule."""
        if self._rules.pop(name, None) is not None:
            self._rebuild_all()

    def set_node(self, name: str, labels: Mapping[str, str]) -> bool:
        """Take a new or changed node; return True if that moves what it reaches."""
        if self._labels.get(name) == labels:
            return False
        self._labels[name] = labels
        self._reach.pop(name, None)
        return True

    def remove_node(self, name: str) -> None:
        """Drop a node."""
        self._labels.pop(name, None)
        self._reach.pop(name, None)

    def slices(self) -> Iterator[DeviceSlice]:
        """Yield all slices."""
        for of_pool in self._slices.values():
            yield from of_pool.values()

    def rules(self) -> tuple[TaintRule, ...]:
        """Return all taint rules."""
        return tuple(self._rules.values())

    def pool(self, pool_id: PoolId) -> Pool | None:
        """Return a pool, None = there is none."""
        return self._pools.get(pool_id)

    def cell(self, device: DeviceId) -> Cell | None:
        """Return a device, None = it is not published, or its pool is closed."""
        pool = self._pools.get((device[0], device[1]))
        return next((cell for cell in pool.cells if cell.id == device), None) if pool is not None else None

    def labels(self, node: str) -> Mapping[str, str]:
        """Return a node's labels; none of one that is not known."""
        return self._labels.get(node, {})

    def reach(self, node: str) -> Reach:
        """Return what the node reaches; nothing for a node that is not known."""
        found = self._reach.get(node)
        if found is None and node in self._labels:
            found = self._reach[node] = self._reached(node, self._labels[node])
        return found if found is not None else Reach()

    def _reached(self, node: str, labels: Mapping[str, str]) -> Reach:
        cells: list[Cell] = []
        problems: list[str] = []
        for pool_id in sorted(self._local.get(node, set()) | self._wide):
            pool = self._pools[pool_id]
            if pool.problem:
                problems.append(f"pool {pool_id[1]} of {pool_id[0]}: {pool.problem}")
            cells += [cell for cell in pool.cells if cell.where.reaches(node, labels)]
        return Reach(cells=tuple(cells), problems=tuple(problems))

    def _rebuild_all(self) -> None:
        for pool_id in self._slices:
            self._rebuild(pool_id)
        self._reach.clear()

    def _rebuild(self, pool_id: PoolId) -> frozenset[str] | None:
        old = self._pools.pop(pool_id, None)
        for node in (old.nodes or ()) if old is not None else ():
            self._local[node].discard(pool_id)
        self._wide.discard(pool_id)
        slices = self._slices.get(pool_id)
        if not slices:
            self._slices.pop(pool_id, None)
            return self._forget(old, None)
        new = _joined(pool_id, slices.values(), self._rules.values())
        self._pools[pool_id] = new
        if new.nodes is None:
            self._wide.add(pool_id)
        else:
            for node in new.nodes:
                self._local.setdefault(node, set()).add(pool_id)
        return self._forget(old, new)

    def _forget(self, *pools: Pool | None) -> frozenset[str] | None:
        known = [pool for pool in pools if pool is not None]
        concerned = [pool.nodes for pool in known if pool.nodes is not None]
        if len(concerned) < len(known):
            self._reach.clear()
            return None
        nodes = frozenset().union(*concerned)
        for node in nodes:
            self._reach.pop(node, None)
        return nodes


def _joined(pool_id: PoolId, slices: Iterable[DeviceSlice], rules: Iterable[TaintRule]) -> Pool:
    """Return the pool of the newest generation; older slices are on their way out and count as gone."""
    known = sorted(slices, key=lambda one: one.name)
    generation = max(one.generation for one in known)
    current = [one for one in known if one.generation == generation]
    counters = {name: dict(amounts) for one in current for name, amounts in one.counter_sets}
    pool = Pool(id=pool_id, counters=counters, problem=_problem(current, counters), nodes=_nodes(current))
    if not pool.problem:
        concerning = [rule for rule in rules if rule.driver in ("", pool_id[0]) and rule.pool in ("", pool_id[1])]
        pool.cells = tuple(
            Cell(pool, device, one.where or device.where or _NOWHERE, _tainted(pool_id, device, concerning))
            for one in current
            for device in one.devices
        )
    return pool


def _tainted(pool_id: PoolId, device: PoolDevice, rules: list[TaintRule]) -> tuple[DeviceTaint, ...]:
    return device.taints + tuple(rule.taint for rule in rules if rule.concerns(*pool_id, device.name))


def _problem(slices: list[DeviceSlice], counters: CounterTotals) -> str:
    wanted = max(one.slice_count for one in slices)
    unreadable = next((f"slice {one.name}: {one.problem}" for one in slices if one.problem), "")
    if unreadable:
        return unreadable
    if len(slices) != wanted:
        return f"{len(slices)} of {wanted} resource slices are here"
    sets = [name for one in slices for name, _ in one.counter_sets]
    if len(set(sets)) != len(sets):
        return "two counter sets have the same name"
    names = [device.name for one in slices for device in one.devices]
    if len(set(names)) != len(names):
        return "two devices have the same name"
    for one in slices:
        for device in one.devices:
            for counter_set, amounts in device.uses:
                if counter_set not in counters:
                    return f"device {device.name} draws from {counter_set}, which is not there"
                lacking = [name for name, _ in amounts if name not in counters[counter_set]]
                if lacking:
                    return f"device {device.name} draws {lacking[0]} from {counter_set}, which has none"
    return ""


def _nodes(slices: list[DeviceSlice]) -> frozenset[str] | None:
    found: set[str] = set()
    for one in slices:
        for where in [one.where] if one.where is not None else [device.where for device in one.devices]:
            if where is not None and not where.node:
                return None
            if where is not None:
                found.add(where.node)
    return frozenset(found)
