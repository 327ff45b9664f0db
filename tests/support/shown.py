"""A small cluster in which everything held is shown by the API, as a proposal of seats sees it (`preemption.View`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from binpack.books import Holding
from binpack.dra.desk import Desk
from binpack.ledger import Ledger
from binpack.preemption.bonds import Crew
from binpack.tenants import Tenants
from fleet.node import Node
from fleet.pod import Pod


class Shown:
    """No rules between pods, no gangs, nobody who was asked to go and does not show it yet."""

    def __init__(self, nodes: Iterable[Node], pods: Iterable[Pod], desk: Desk | None = None) -> None:
        self.ledger, self.tenants, self.desk = Ledger(), Tenants(), Desk() if desk is None else desk
        for node in nodes:
            self.ledger.set_node(node)
        for pod in pods:
            self.ledger.set_pod(pod)
            self.tenants.seen(pod)

    def open_nodes(self) -> Iterable[str]:
        return self.ledger.names()

    def open_node(self, name: str) -> Node | None:
        return self.ledger.node(name)

    def staying(self, name: str) -> Mapping[str, Holding]:
        tenants = self.tenants.on(name)
        held = self.ledger.holdings_on(name)
        return {uid: one for uid, one in held.items() if not (uid in tenants and tenants[uid].is_terminating)}

    def leaves(self, uid: str) -> bool:
        tenant = self.tenants.get(uid)
        return tenant is None or tenant.is_terminating

    def allows(self, pod: Pod, name: str) -> bool:
        return True

    def crew(self, pod: Pod) -> Crew | None:
        return None
