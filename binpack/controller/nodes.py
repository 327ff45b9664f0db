"""The nodes as pods may see them: each change of the ledger, carried into everything that knows nodes. No I/O."""

from __future__ import annotations

from collections.abc import Container, Iterable

from binpack.check_register import Register
from binpack.company import Company
from binpack.controller.growth import has_grown
from binpack.controller.yard import Yard
from binpack.dra.desk import Desk
from binpack.index import Index
from binpack.ledger import Ledger
from binpack.state import NodeState
from fleet.pod import Berth, Pod


class Nodes:
    """One picture of every node, the same for index, pools, resource claims, rules between pods and the verifier.

    Attributes:
        is_new: Whether no change was carried over yet: what is found now was left by whoever led before.
        warned: What has been said of each node that people should look at.
        to_warn: What is still to be said.
    """

    def __init__(
        self, ledger: Ledger, index: Index, yard: Yard, *, desk: Desk, company: Company, register: Register
    ) -> None:
        self.is_new = True
        self.warned: dict[str, tuple[str, ...]] = {}
        self.to_warn: dict[str, tuple[str, ...]] = {}
        self._ledger = ledger
        self._index = index
        self._yard = yard
        self._desk = desk
        self._company = company
        self._register = register
        self._states: dict[str, NodeState] = {}
        self._grown: set[str] = set()
        for place in (index, yard.warm):
            place.use_claims(desk)
            place.use_company(company)

    # -- changes -----------------------------------------------------------------------------------------------

    def carry_changes(self, gated: Container[str]) -> None:
        """Carry over every node that changed since the last call.

        Args:
            gated: UIDs of the pods that wait to be planned.
        """
        for name in sorted(self._ledger.take_changed() | self._desk.changes.take_touched()):
            try:
                self.carry_over(name, gated)
            except Exception as error:
                # Broad on purpose: one node that cannot be dealt with must not hide what changed on the others.
                self._drop(name)
                self._note_warnings(name, (f"node {name} cannot be used: {type(error).__name__}: {error}",))
        self.is_new = False

    def carry_over(self, name: str, gated: Container[str]) -> None:
        """Carry over one node as the ledger has it now."""
        state = self._ledger.state(name)
        self._note_warnings(name, self._ledger.warnings_on(name))
        if state is None:
            self._company.remove_node(name)
            self._desk.remove_node(name)
            self._register.remove_node(name)
            self._drop(name)
            return
        state = self._desk.shown(state)
        self._company.set_node(state)
        self._register.set_node(state)
        old = self._states.get(name)
        if state.node.pool:
            shown = self._yard.sort(state, gated, may_adopt=self.is_new)
            if shown is None:
                self._hide(name)
                return
            state = shown
        else:
            self._yard.drop(name)
        if old is state:
            return
        if self._yard.is_warm(name):
            self._index.remove_node(name)
        else:
            self._index.set_node(state)
        self._states[name] = state
        if old is None or has_grown(old, state):
            self._grown.add(name)

    def _drop(self, name: str) -> None:
        self._yard.drop(name)
        self._hide(name)

    def _hide(self, name: str) -> None:
        self._states.pop(name, None)
        self._grown.discard(name)
        self._index.remove_node(name)

    def _note_warnings(self, name: str, warnings: tuple[str, ...]) -> None:
        new = tuple(warning for warning in warnings if warning not in self.warned.get(name, ()))
        if new:
            self.to_warn[name] = self.to_warn.get(name, ()) + new
        if warnings:
            self.warned[name] = warnings
        else:
            self.warned.pop(name, None)

    # -- warm nodes --------------------------------------------------------------------------------------------

    def note_draw(self, pod: Pod, berth: Berth) -> None:
        """Note a draw without a claim: of a pool's node that served, stands empty, and is not proven anew yet."""
        state = self._ledger.state(berth.node)
        if state is None or not state.node.pool or self._yard.is_warm(berth.node):
            return
        if not self._ledger.has_ours_on(berth.node):
            self._yard.note_hit(pod, state.node)

    def shun(self, name: str, now_s: float, gated: Container[str]) -> None:
        """Leave a warm node alone for a while that could not be claimed."""
        state = self._ledger.state(name)
        if state is not None:
            self._yard.shun(state.node, now_s)
            self.carry_over(name, gated)

    def forgive(self, now_s: float, gated: Container[str]) -> None:
        """Look again at warm nodes that were left alone for a while."""
        for name in self._yard.forgiven(now_s):
            self.carry_over(name, gated)

    # -- what stands -------------------------------------------------------------------------------------------

    @property
    def has_grown(self) -> bool:
        """Return True if room appeared on a node since `take_grown`."""
        return bool(self._grown)

    def take_grown(self) -> list[NodeState]:
        """Return the nodes on which room appeared since the last call."""
        grown = [self._states[name] for name in sorted(self._grown)]
        self._grown.clear()
        return grown

    def get(self, name: str) -> NodeState | None:
        """Return the state of one node as the index knows it, None if there is no such node."""
        return self._states.get(name)

    def states(self, names: Iterable[str]) -> dict[str, NodeState]:
        """Return the states of the named nodes as the index knows them."""
        return {name: self._states[name] for name in names if name in self._states}

    def serving(self) -> dict[str, NodeState]:
        """Return the states of all nodes that take pods without a claim, as the index knows them."""
        return {name: state for name, state in self._states.items() if not self._yard.is_warm(name)}
