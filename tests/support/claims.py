"""An API server of nodes alone, whose every call can be held up, cut short or answered into the void."""

from __future__ import annotations

import json
from collections.abc import Coroutine, Generator
from typing import Any

from fleet import labels
from fleet.errors import ApiError, Invalid, NotFound
from fleet.node import Node as PoolNode
from tests.support import json_patch

Node = dict[str, Any]


class Pause:
    """One turn for somebody else."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Nodes:
    """Stands in for `fleet.kube.client.Client`, as far as claims go.

    Attributes:
        writes: Every write that took place: node, annotations before, annotations after.
        lose: How many of the next answers get lost although the write took place.
    """

    def __init__(self, **warm: str) -> None:
        self.objects: dict[str, Node] = {name: a_node(name, text) for name, text in warm.items()}
        self.writes: list[tuple[str, dict[str, str], dict[str, str]]] = []
        self.lose = 0

    def show(self, node: PoolNode) -> None:
        """Take a node as a value, if it is of a pool."""
        if node.pool:
            notes = {name: text for name, text in ((labels.WARM, node.warm), (labels.CLAIM, node.claim)) if text}
            notes = notes or {"other": "annotation"}
            self.objects[node.name] = {
                "metadata": {"name": node.name, "uid": node.uid, "annotations": notes},
                "spec": {},
            }

    async def get(self, path: str) -> bytes:
        await Pause()
        return json.dumps(self._at(path)).encode()

    async def json_patch(self, path: str, body: bytes) -> bytes:
        await Pause()
        self.write(path, body)
        await Pause()
        if self.lose > 0:
            self.lose -= 1
            raise ApiError(0, "Timeout", "the answer was lost")
        return b"{}"

    def write(self, path: str, body: bytes) -> None:
        """Apply a patch as a whole, or not at all."""
        node = self._at(path)
        try:
            changed = json_patch.apply(node, body)
        except json_patch.PatchFailed as error:
            raise Invalid(422, "Invalid", str(error)) from None
        name = node["metadata"]["name"]
        self.writes.append((name, node["metadata"]["annotations"], changed["metadata"]["annotations"]))
        self.objects[name] = changed

    def claim_of(self, name: str) -> str:
        return str(self.objects[name]["metadata"]["annotations"].get(labels.CLAIM, ""))

    def warm_of(self, name: str) -> str:
        return str(self.objects[name]["metadata"]["annotations"].get(labels.WARM, ""))

    def _at(self, path: str) -> Node:
        name = path.rpartition("/")[2]
        if name not in self.objects:
            raise NotFound(404, "NotFound", name)
        return self.objects[name]


def a_node(name: str, warm: str) -> Node:
    notes = {labels.WARM: warm} if warm else {"other": "annotation"}
    return {"metadata": {"name": name, "uid": f"uid-{name}", "annotations": notes}, "spec": {}}


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that waits for nothing but turns."""
    while True:
        try:
            work.send(None)
        except StopIteration as done:
            return done.value


def step(work: Coroutine[Any, Any, Any]) -> bool:
    """Take one turn; False once it is over."""
    try:
        work.send(None)
    except StopIteration:
        return False
    return True
