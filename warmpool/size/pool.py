"""One imagined pool with a target that moves: what a rule would really have done."""

from __future__ import annotations

import heapq


class Pool:
    """Mutable; a draw takes a warm node and is followed by an order at once, a miss gets its node from elsewhere.

    Orders are not called back; what is warm beyond the target is given back.

    Attributes:
        idle_s: Node-seconds warm and unclaimed since the beginning.
        ordered_s: Node-seconds on order since the beginning.
        draws: Draws since the beginning.
        missed: Of these, without a warm node.
    """

    __slots__ = ("_due", "_now_s", "_target", "_warm", "draws", "idle_s", "missed", "ordered_s")

    def __init__(self, warm: int, now_s: float) -> None:
        self._warm = self._target = warm
        self._due: list[float] = []
        self._now_s = now_s
        self.idle_s = self.ordered_s = 0.0
        self.draws = self.missed = 0

    @property
    def position(self) -> int:
        """Return the nodes that are warm or ordered."""
        return self._warm + len(self._due)

    def missing(self, target: int) -> int:
        """Take a new target, give back what is too much, and return how many nodes to order."""
        self._target = target
        over = self.position - target
        if over > 0:
            self._warm -= min(self._warm, over)
        return max(0, -over)

    def order(self, due_s: float) -> None:
        """Order a node that is warm at `due_s`."""
        heapq.heappush(self._due, due_s)

    def draw(self, at_s: float, lead_s: float) -> bool:
        """Take a node and return whether there was one."""
        self.advance(at_s)
        self.draws += 1
        if self._warm == 0:
            self.missed += 1
            return False
        self._warm -= 1
        if self.position < self._target:
            self.order(at_s + lead_s)
        return True

    def advance(self, to_s: float) -> None:
        """Let time pass until `to_s`."""
        while self._due and self._due[0] <= to_s:
            due_s = heapq.heappop(self._due)
            self._pass(due_s, len(self._due) + 1)
            self._warm += 1
        self._pass(to_s, len(self._due))

    def _pass(self, to_s: float, ordered: int) -> None:
        if to_s > self._now_s:
            self.idle_s += self._warm * (to_s - self._now_s)
            self.ordered_s += ordered * (to_s - self._now_s)
            self._now_s = to_s
