"""Which replica has which slot of the balancer: drained first, freed when it holds nothing, never taken over before.

A slot that still had sessions when it was reused would count them against the new replica and break its limit.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from scaler.balancer.socket import RuntimeSocket
from scaler.balancer.stat import BackendLine, ServerLine, backends
from scaler.balancer.values import ServerState


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotTurn:
    """What one turn does and finds.

    Attributes:
        commands: For the runtime socket.
        serving: Addresses that take traffic, once the commands are carried out.
        draining: Addresses that finish what they have.
        refused: Wanted addresses for which there is no free slot.
        kept: Unwanted addresses that stay because they are the last and requests wait.
    """

    commands: tuple[str, ...] = ()
    serving: frozenset[str] = frozenset()
    draining: frozenset[str] = frozenset()
    refused: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def holds(self, address: str) -> bool:
        """Return whether the replica must not be stopped yet."""
        return address in self.serving or address in self.draining


def slot_turn(backend: BackendLine, wanted: Collection[str]) -> SlotTurn:
    """Return what brings the slots nearer to the wanted replicas.

    The last serving replica is drained only while nothing waits and it has room: HAProxy answers 503 to a queue whose
    last server leaves (measured, 2.8.25), while requests that come later are held.

    Args:
        backend: As it is.
        wanted: IP:PORT of the replicas that shall serve; they are Ready.
    """
    taken = [server for server in backend.servers if server.state is not ServerState.EMPTY]
    free = [server for server in backend.servers if server.state is ServerState.EMPTY and not server.in_flight]
    commands: list[str] = []
    serving, draining = set[str](), set[str]()
    leaving: list[ServerLine] = []
    for server in taken:
        if server.address in wanted:
            if server.state is ServerState.DRAINING:
                commands.append(f"set server {backend.name}/{server.name} state ready")
            serving.add(server.address)
        elif server.state is ServerState.DRAINING and not server.in_flight and not server.queued:
            commands.append(f"set server {backend.name}/{server.name} state maint")
        elif server.state is ServerState.DRAINING:
            draining.add(server.address)
        else:
            leaving.append(server)
    refused = []
    for address in sorted(set(wanted) - serving):
        if not free:
            refused.append(address)
            continue
        server = free.pop(0)
        where, (ip, _, port) = f"{backend.name}/{server.name}", address.rpartition(":")
        commands += [f"set server {where} addr {ip} port {port}", f"set server {where} state ready"]
        serving.add(address)
    kept = _kept(backend, leaving) if not serving else None
    for server in leaving:
        if server is kept:
            serving.add(server.address)
        else:
            commands.append(f"set server {backend.name}/{server.name} state drain")
            draining.add(server.address)
    return SlotTurn(
        commands=tuple(commands),
        serving=frozenset(serving),
        draining=frozenset(draining),
        refused=tuple(refused),
        kept=() if kept is None else (kept.address,),
    )


def _kept(backend: BackendLine, leaving: list[ServerLine]) -> ServerLine | None:
    waiting = backend.queued + sum(server.queued for server in leaving)
    roomy = [server for server in leaving if not server.limit or server.in_flight < server.limit]
    return leaving[0] if leaving and (waiting or len(roomy) < len(leaving)) else None


class SlotKeeper:
    """Carries turns out on one backend. It has no memory: the balancer's own state is all there is."""

    def __init__(self, runtime: RuntimeSocket, backend: str) -> None:
        self._runtime = runtime
        self._backend = backend

    async def turn(self, wanted: Collection[str]) -> SlotTurn:
        """Look, decide, tell.

        Args:
            wanted: IP:PORT of Ready replicas that shall serve.

        Raises:
            SocketError: The balancer did not answer.
            DecodeError: It answered something else.
            KeyError: It has no such backend.
        """
        found = backends(await self._runtime.statistics(with_empty=True))[self._backend]
        turn = slot_turn(found, wanted)
        if turn.commands:
            await self._runtime.tell(turn.commands)
        return turn
