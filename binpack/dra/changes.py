"""Where and when the books of claims moved, so that only what moved is looked at again."""

from __future__ import annotations


class Changes:
    """Nodes by when something changed on them, counted in changes.

    Attributes:
        clock: How many changes there were.
        everywhere_at: When something last changed that may concern every node.
        has_room: Devices became free, or claims plannable, since `take_room`.
    """

    def __init__(self) -> None:
        self.clock = 0
        self.everywhere_at = 0
        self.has_room = False
        self._at: dict[str, int] = {}
        self._touched: set[str] = set()

    def on(self, node: str) -> None:
        """Note a change on one node."""
        self.clock += 1
        self._at.pop(node, None)
        self._at[node] = self.clock  # the latest last
        self._touched.add(node)

    def everywhere(self) -> None:
        """Note a change that may concern every node."""
        self.clock += 1
        self.everywhere_at = self.clock

    def forget(self, node: str) -> None:
        """Drop a node that is gone."""
        self._at.pop(node, None)

    def since(self, clock: int) -> list[str]:
        """Return the nodes that changed after a time of `clock`."""
        found: list[str] = []
        for name in reversed(self._at):
            if self._at[name] <= clock:
                break
            found.append(name)
        return found

    def take_room(self) -> bool:
        """Return True if devices became free, or claims plannable, since the last call."""
        had, self.has_room = self.has_room, False
        return had

    def take_touched(self) -> set[str]:
        """Return the nodes whose GPUs are held otherwise than at the last call."""
        touched, self._touched = self._touched, set()
        return touched
