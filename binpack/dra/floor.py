"""One node as it would be with some pods gone: what is free of it, and what claims could get there. Nothing is booked.

A claim is free once the last pod is gone that it is reserved for: the cluster's own controller takes its allocation
back then (KEP-4381). Until it has, the devices are held, whoever is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from binpack.books import Holding, account
from binpack.dra.books import Beside, BookView
from binpack.dra.choose import Chosen
from binpack.dra.desk import Desk, keeper, recorder
from binpack.dra.shown import recorded_on, recorded_results, with_held
from binpack.dra.wishes import Pending, Wish
from binpack.state import NodeState
from fleet.dra import Allocation, ClaimChoice
from fleet.node import Node
from fleet.pod import Pod

Taken = Mapping[str, Allocation]
NOTHING_TAKEN: Taken = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A node in thought.

    Attributes:
        state: What is free of it, GPUs that claims would hold counted as used.
        books: Which devices claims would hold; None = the node reaches none.
        taken: What claims without devices would have been given, by uid.
    """

    state: NodeState
    books: BookView | None
    taken: Taken


class Floor:
    """Looks at one node, with these pods gone or those."""

    def __init__(
        self, node: Node, desk: Desk, *, leaves: Callable[[str], bool] = lambda _: True, apart: Iterable[str] = ()
    ) -> None:
        """Read which claims have devices here, and for whom.

        Args:
            node: As pods see it that may be planned there.
            desk: What claims hold and could get.
            leaves: Whether a pod, by uid, is on its way out or gone already.
            apart: Uids of pods: what is kept for them counts only where it is `taken`.
        """
        self.node = node
        self._desk = desk
        self._leaves = leaves
        self._apart = frozenset(map(keeper, apart))
        self._cells = desk.pools.reach(node.name).cells
        self._users = self._used_by() if self._cells else {}

    @property
    def width(self) -> int:
        """Return how many devices for claims the node reaches: a look takes as long as they are many."""
        return len(self._cells)

    def wish(self, pod: Pod) -> Wish | Pending | None:
        """Return what the pod's claims want, or why they cannot be planned; None = it has no claims."""
        return self._desk.wish(pod) if pod.resource_claims else None

    def sharers(self, pod: Pod) -> frozenset[str]:
        """Return the uids of other pods that use a claim of this one."""
        return self._desk.sharers(pod)

    def now(self, holdings: Collection[Holding], taken: Taken = NOTHING_TAKEN) -> Scene:
        """Return the node as it is, beside these holdings."""
        return self._scene(holdings, frozenset(), taken)

    def later(self, holdings: Collection[Holding], gone: Collection[str] = (), taken: Taken = NOTHING_TAKEN) -> Scene:
        """Return the node once those who leave are gone, and these pods too.

        Args:
            holdings: Of those who stay.
            gone: Uids of pods that are to go beside those who leave already.
            taken: What claims without devices are given, by uid.
        """
        freed = [
            claim for claim, users in self._users.items() if all(uid in gone or self._leaves(uid) for uid in users)
        ]
        return self._scene(holdings, frozenset(freed), taken)

    def choices(self, wish: Wish, scene: Scene) -> tuple[ClaimChoice, ...] | None:
        """Return devices for what a wish wants in a scene, None where there are none.

        Claims that the scene gives devices already are not given any again.
        """
        given = [scene.taken[want.uid] for want in wish.wants if want.uid in scene.taken]
        if given:
            left = tuple(want for want in wish.wants if want.uid not in scene.taken)
            wish = replace(wish, wants=left, given=(*wish.given, *given))
        answer = self._desk.offer(self.node.name, wish, scene.books)
        return answer.choices if isinstance(answer, Chosen) else None

    def _scene(self, holdings: Collection[Holding], freed: frozenset[str], taken: Taken) -> Scene:
        state = account(self.node, holdings).state
        if not self._cells:
            return Scene(state=state, books=None, taken=taken)
        records = recorder(self.node.name)
        more = {claim: allocation.results for claim, allocation in taken.items()}
        more[records] = recorded_results(self._cells, recorded_on(state))
        books = Beside(self._desk.books, self._desk.pools, freed | self._apart | {records}, more)
        return Scene(state=with_held(state, self._desk.held_on(self.node.name, books)), books=books, taken=taken)

    def _used_by(self) -> dict[str, frozenset[str]]:
        """Return by uid the claims with devices here that can become free, and the pods that must go for that.

        What was only decided, or is reserved for nobody or for other objects, is freed by nobody's going.
        """
        found: dict[str, frozenset[str]] = {}
        claims = self._desk.claims
        for cell in self._cells:
            for holder in self._desk.books.holdings(cell.id):
                claim = claims.get(holder)
                if claim is None or claim.allocation is None or not claim.reserved_for:
                    continue
                if all(one.resource == "pods" and not one.group for one in claim.reserved_for):
                    found[holder] = frozenset(one.uid for one in claim.reserved_for)
        return found
