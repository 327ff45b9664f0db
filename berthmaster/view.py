"""The cluster as the planner sees it, for commands that only look."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from binpack.controller.claim_feed import ClaimFeed, SliceListener
from binpack.dra.desk import Desk
from binpack.feed import Feed
from binpack.index import Index
from binpack.ledger import Ledger
from binpack.state import NodeState
from fleet.clock import Clock
from fleet.errors import ApiError, BerthmasterError
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.credentials import Connection
from fleet.pod import Pod

_SYNC_WITHIN_S = 60.0
_CLAIMS_WITHIN_S = 3.0
_LOOK_EVERY_S = 0.02


class View:
    """Ledger, index and every pod, kept up to date while the watch is open."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.index = Index()
        self.desk = Desk()
        self.index.use_claims(self.desk)
        self.index.company.follow(self.ledger.coming)
        self.pods: dict[str, Pod] = {}
        self._states: dict[str, NodeState] = {}

    def pod_seen(self, pod: Pod) -> None:
        """Keep the pod."""
        self.pods[pod.uid] = pod

    def pod_gone(self, uid: str) -> None:
        """Drop the pod."""
        self.pods.pop(uid, None)

    def refresh(self) -> None:
        """Carry what changed in the ledger into the index."""
        for name in sorted(self.ledger.take_changed() | self.desk.changes.take_touched()):
            state = self.ledger.state(name)
            if state is None:
                self._states.pop(name, None)
                self.index.remove_node(name)
                self.desk.remove_node(name)
            else:
                state = self.desk.shown(state)
                self._states[name] = state
                self.index.set_node(state)

    @property
    def states(self) -> dict[str, NodeState]:
        """Return the state of every node by name, as of the last refresh."""
        return self._states

    def find(self, namespace: str, name: str) -> Pod:
        """Return the pod of this name.

        Raises:
            BerthmasterError: There is none; the message names pods that are spelled alike.
        """
        for pod in self.pods.values():
            if pod.namespace == namespace and pod.name == name:
                return pod
        elsewhere = sorted(pod.namespace for pod in self.pods.values() if pod.name == name)
        hint = f"; there is one in namespace {', '.join(elsewhere)}" if elsewhere else ""
        raise BerthmasterError(f"no pod {namespace}/{name}{hint}")


@asynccontextmanager
async def watched(connection: Connection, clock: Clock) -> AsyncIterator[View]:
    """Open the watches, wait until they are complete, and give the view.

    Raises:
        BerthmasterError: The API server cannot be reached, refuses, or does not answer within a minute.
    """
    async with Client(connection, clock, user_agent="berthmaster") as client:
        try:
            await client.get(paths.NODES, {"limit": "1"}, timeout_s=10.0)
        except ApiError as error:
            raise BerthmasterError(f"cannot read the cluster at {connection.base_url}: {error}") from error
        view = View()
        feed = Feed(client, clock, view.ledger, listener=view, slice_listener=SliceListener(view.desk))
        claims = ClaimFeed(client, clock, view.desk, lambda: None, lambda kind, name: None)
        watching = asyncio.ensure_future(feed.run())
        claiming = asyncio.ensure_future(claims.run())
        try:
            deadline_s = clock.monotonic_s() + _SYNC_WITHIN_S
            while not feed.is_synced:
                if watching.done():
                    await watching
                if clock.monotonic_s() > deadline_s:
                    raise BerthmasterError(f"the cluster at {connection.base_url} did not send its objects in time")
                await clock.sleep(_LOOK_EVERY_S)
            # Whoever may not read resource claims sees all the rest; pods with claims then say so.
            deadline_s = clock.monotonic_s() + _CLAIMS_WITHIN_S
            while not view.desk.is_synced and not claiming.done() and clock.monotonic_s() < deadline_s:
                await clock.sleep(_LOOK_EVERY_S)
            view.refresh()
            yield view
        finally:
            watching.cancel()
            claiming.cancel()
            await asyncio.gather(watching, claiming, return_exceptions=True)
