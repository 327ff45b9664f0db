"""Slots of the balancer: who has which, when it is free again, and that the last one leaves no queue behind."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from berthmaster.traffic.slots import slot_turn
from scaler.balancer.stat import BackendLine
from scaler.balancer.values import ServerState
from tests.support.haproxy import backend, server

EMPTY, READY, DRAIN = ServerState.EMPTY, ServerState.SERVING, ServerState.DRAINING


def carried_out(found: BackendLine, commands: tuple[str, ...]) -> BackendLine:
    """Return the backend as HAProxy would have it after the commands."""
    lines = {one.name: one for one in found.servers}
    for command in commands:
        _, _, where, what, *rest = command.split()
        name = where.partition("/")[2]
        if what == "addr":
            lines[name] = replace(lines[name], address=f"{rest[0]}:{rest[2]}")
        else:
            lines[name] = replace(lines[name], state={"ready": READY, "drain": DRAIN, "maint": EMPTY}[rest[0]])
    return replace(found, servers=tuple(lines.values()))


def test_a_replica_gets_a_free_slot_and_takes_traffic() -> None:
    found = backend(server("slot1", state=EMPTY), server("slot2", state=EMPTY))
    turn = slot_turn(found, ["10.1.0.1:8000"])
    assert turn.commands == ("set server be/slot1 addr 10.1.0.1 port 8000", "set server be/slot1 state ready")
    assert turn.holds("10.1.0.1:8000")


def test_a_replica_is_drained_then_freed_and_may_then_be_stopped() -> None:
    found = backend(server("slot1"), server("slot2", in_flight=2))
    turn = slot_turn(found, ["10.0.0.1:80"])
    assert turn.commands == ("set server be/slot2 state drain",)
    assert turn.holds("10.0.0.2:80")
    found = carried_out(found, turn.commands)
    assert slot_turn(found, ["10.0.0.1:80"]).commands == ()
    found = replace(found, servers=(found.servers[0], replace(found.servers[1], in_flight=0)))
    turn = slot_turn(found, ["10.0.0.1:80"])
    assert turn.commands == ("set server be/slot2 state maint",)
    assert not turn.holds("10.0.0.2:80")


def test_a_draining_replica_that_is_wanted_again_goes_on() -> None:
    turn = slot_turn(backend(server("slot1", state=DRAIN, in_flight=1)), ["10.0.0.1:80"])
    assert turn.commands == ("set server be/slot1 state ready",)


def test_the_last_one_stays_while_requests_wait() -> None:
    """HAProxy answers 503 to a queue whose last server leaves."""
    full = backend(server("slot1", in_flight=8, limit=8), queued=3)
    turn = slot_turn(full, [])
    assert (turn.commands, turn.kept, turn.serving) == ((), ("10.0.0.1:80",), {"10.0.0.1:80"})
    just_queued = backend(server("slot1", in_flight=3, limit=8), queued=1)
    assert slot_turn(just_queued, []).kept == ("10.0.0.1:80",)
    roomy = backend(server("slot1", in_flight=3, limit=8))
    assert slot_turn(roomy, []).commands == ("set server be/slot1 state drain",)
    replaced = backend(server("slot1", in_flight=8, limit=8), server("slot2", state=EMPTY), queued=3)
    assert slot_turn(replaced, ["10.9.0.1:80"]).kept == (), "another one serves the queue"


lines = st.lists(
    st.tuples(st.sampled_from([EMPTY, READY, DRAIN, ServerState.DOWN]), st.integers(0, 3)), min_size=1, max_size=8
)


@given(lines, st.sets(st.integers(1, 12), max_size=8), st.integers(0, 3))
def test_no_slot_with_sessions_changes_hands_and_turns_come_to_an_end(
    slots: list[tuple[ServerState, int]], numbers: set[int], queued: int
) -> None:
    found = backend(
        *(server(f"slot{n}", state=state, in_flight=load) for n, (state, load) in enumerate(slots, 1)), queued=queued
    )
    wanted = {f"10.0.0.{number}:80" for number in numbers}
    for _ in range(4):
        turn = slot_turn(found, wanted)
        busy = {one.name for one in found.servers if one.in_flight}
        assert not [c for c in turn.commands if " addr " in c and c.split()[2].partition("/")[2] in busy]
        after = carried_out(found, turn.commands)
        serving = {one.address for one in after.servers if one.state is READY}
        assert serving >= wanted - set(turn.refused) - {
            one.address for one in after.servers if one.state is ServerState.DOWN
        }
        assert set(turn.refused) <= wanted
        found = replace(after, servers=tuple(replace(one, in_flight=0) for one in after.servers), queued=0)
    assert slot_turn(found, wanted).commands == ()
