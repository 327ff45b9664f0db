"""Feeds an autoscaler one second after the other, as the simulator does."""

from collections.abc import Iterable

from scaler.seen import Fleet, Sample


def a_second(at_s: float, load: float | None, queued: float | None = 0.0) -> Sample:
    return Sample(at_s=at_s, in_flight=load, queued=queued)


def a_fleet(ready: int, starting: int = 0) -> Fleet:
    return Fleet(ready=ready, starting_since_s=(0.0,) * starting)


def answers(rival, loads: Iterable[float | None], fleet: Fleet, *, begin_s: int = 1) -> dict[int, int]:
    """Return what it answers to an unchanging fleet, by second."""
    given = {}
    for at_s, load in enumerate(loads, begin_s):
        rival.see(a_second(float(at_s), load), fleet)
        if at_s % rival.period_s == 0:
            given[at_s] = rival.decide(float(at_s), fleet)
    return given


def obeyed(rival, loads: Iterable[float | None], ready: int, start_s: int) -> list[int]:
    """Return replicas ready and starting after each second, with every answer carried out at once.

    A replica is ready `start_s` after its order; starting ones go first, the last ordered before the others.
    """
    starting: list[float] = []
    counts = []
    for at_s, load in enumerate(loads, 1):
        ready += sum(1 for since_s in starting if at_s - since_s >= start_s)
        starting = [since_s for since_s in starting if at_s - since_s < start_s]
        fleet = Fleet(ready=ready, starting_since_s=tuple(starting))
        rival.see(a_second(float(at_s), load), fleet)
        if at_s % rival.period_s == 0:
            change = rival.decide(float(at_s), fleet) - fleet.replicas
            if change >= 0:
                starting += [float(at_s)] * change
            else:
                ready -= max(0, -change - len(starting))
                starting = starting[: max(0, len(starting) + change)]
        counts.append(ready + len(starting))
    return counts
