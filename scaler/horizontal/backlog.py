"""What will still wait when new capacity is Ready, and the replicas that drain it."""

from __future__ import annotations

from collections.abc import Sequence


def left_over(
    waiting: float, inflow: float, slots: float, ready: int, ready_at_s: Sequence[float], now_s: float, until_s: float
) -> float:
    """Return the work that still waits at `until_s`, requests x seconds; never below 0.

    d(waiting)/dt = inflow - slots (ready + those started by then), held at 0.

    Args:
        waiting: Q S, work that waits now.
        inflow: rate x S, work that comes per second.
        slots: Requests that one replica works on at a time.
        ready: Replicas that serve now.
        ready_at_s: When each starting one will serve.
        now_s: Now.
        until_s: When capacity ordered now serves: now + D.
    """
    at_s = now_s
    for next_s in (*sorted(min(max(at, now_s), until_s) for at in ready_at_s), until_s):
        waiting = max(0.0, waiting + (inflow - slots * ready) * (next_s - at_s))
        at_s = next_s
        ready += 1
    return waiting


def drain_replicas(inflow: float, left: float, slots: float, drain_s: float) -> float:
    """Return the replicas that carry the inflow and drain what is left in `drain_s`.

    n_drain = rate S / slots + B / (slots T)
    """
    return inflow / slots + left / (slots * drain_s)


def drain_time_s(start_time_s: float, service_s: float, is_thrifty: bool) -> float:
    """Return T, how fast the backlog is drained.

    T = max(2 s, D / 12, min(S, 30 s)); thrifty D / 3 instead of D / 12.

    D / 6 cost 0.3 points of late requests on the step, D / 3 1.2. At least S, because new slots take waiting requests
    at once: more replicas than queue / slots are waste. Measured: bench/scaler.
    """
    return max(2.0, start_time_s / (3.0 if is_thrifty else 12.0), min(service_s, 30.0))
