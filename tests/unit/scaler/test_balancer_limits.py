"""What was published into commands for the balancer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet import labels
from scaler.balancer.limits import Allowance, Setting, allowance_of, canary_of, settings
from scaler.balancer.stat import BackendLine
from scaler.balancer.values import ServerState
from tests.support.haproxy import backend, server


def carried_out(found: BackendLine, wanted: tuple[Setting, ...]) -> BackendLine:
    """Return the backend after the settings."""
    by_name = {setting.server: setting for setting in wanted}
    return replace(
        found,
        servers=tuple(
            replace(
                one,
                limit=one.limit if setting is None or setting.limit is None else setting.limit,
                weight=one.weight if setting is None or setting.weight is None else setting.weight,
            )
            for one in found.servers
            for setting in [by_name.get(one.name)]
        ),
    )


def test_annotations_are_read_and_their_faults_named() -> None:
    found, problems = allowance_of(
        {labels.CONCURRENCY_LIMIT: "25.9", labels.TARGET_CONCURRENCY: "14", labels.CANARY_REPLICA: " 10.0.0.2 "}
    )
    assert found == Allowance(limit=25.9, target=14, canary="10.0.0.2")
    assert problems == ()
    for bad in ("", "x", "nan", "inf", "0", "-3", "1e9"):
        found, problems = allowance_of({labels.CONCURRENCY_LIMIT: bad})
        assert found.limit is None
        assert len(problems) == 1
        assert labels.CONCURRENCY_LIMIT in problems[0]
        assert repr(bad) in problems[0]


def test_a_limit_goes_to_every_slot_the_empty_ones_too() -> None:
    found = backend(server("slot1", limit=8), server("slot2", limit=25), server("slot3", state=ServerState.EMPTY))
    wanted = settings([found], {"be": Allowance(limit=25.9)})
    assert [(one.server, one.limit, one.weight) for one in wanted] == [("slot1", 25, None), ("slot3", 25, None)]
    assert wanted[0].commands() == ("set maxconn server be/slot1 25",)
    assert settings([found], {}) == ()
    assert settings([found], {"be": Allowance()}) == ()
    assert settings([found], {"other": Allowance(limit=3)}) == ()


def test_balancers_share_a_limit_but_each_lets_one_through() -> None:
    found = backend(server("slot1"))
    assert settings([found], {"be": Allowance(limit=10)}, balancers=3)[0].limit == 3
    assert settings([found], {"be": Allowance(limit=2)}, balancers=3)[0].limit == 1


@given(
    st.floats(1, 300),
    st.floats(1, 300),
    st.lists(st.integers(0, 60), min_size=3, max_size=12),
    st.integers(0, 2),
    st.integers(0, 50),
)
def test_settings_are_carried_out_once_and_never_above_the_limit(
    limit: float, target: float, loads: list[int], canary: int, queued: int
) -> None:
    found = backend(*(server(f"slot{number}", in_flight=load) for number, load in enumerate(loads, 1)), queued=queued)
    allowance = {"be": Allowance(limit=limit, target=target, canary=found.servers[canary].name)}
    after = carried_out(found, settings([found], allowance))
    assert settings([after], allowance) == (), "a second turn has nothing left to do"
    assert all(1 <= one.limit <= limit + 1e-6 for one in after.servers)
    assert all(1 <= one.weight <= 256 for one in after.servers)
    usual = {one.weight for number, one in enumerate(after.servers) if number != canary}
    assert len(usual) == 1
    assert after.servers[canary].weight >= usual.pop()


@pytest.mark.parametrize("load", [36, 60, 90])
@pytest.mark.parametrize(
    ("limit", "target"),
    [(25, 14), (25, 6), (20, 14)],
    ids=["all of L is validated", "little of L is validated", "memory binds at L"],
)
def test_the_canary_gets_the_share_that_makes_it_run_at_the_learnt_number(
    load: int, limit: float, target: float
) -> None:
    """L = 20; seven replicas hold `load` together."""
    replicas, learnt = 7, 20.0
    found = backend(
        *(server(f"slot{number}", in_flight=load // replicas) for number in range(1, replicas + 1)),
        queued=load - replicas * (load // replicas),
    )
    after = carried_out(found, settings([found], {"be": Allowance(limit=limit, target=target, canary="10.0.0.3:80")}))
    weights = [one.weight for one in after.servers]
    assert max(weights) == weights[2]
    assert load * weights[2] / sum(weights) == pytest.approx(learnt, rel=0.1)


def test_the_canarys_share_does_not_follow_every_request() -> None:
    allowance = {"be": Allowance(limit=25, target=14, canary="slot2")}

    def loaded(load: int, weight: int) -> BackendLine:
        servers = [server("slot1", in_flight=load), server("slot2", weight=weight), server("slot3")]
        return backend(*(replace(one, limit=25) for one in servers))

    first = carried_out(loaded(50, 16), settings([loaded(50, 16)], allowance)).servers[1].weight
    assert first > 16
    assert settings([loaded(53, first)], allowance) == ()
    assert settings([loaded(30, first)], allowance) != ()


def test_the_canary_never_takes_the_whole_load() -> None:
    found = backend(*(server(f"slot{number}", in_flight=1) for number in range(1, 5)))
    after = carried_out(found, settings([found], {"be": Allowance(limit=50, target=20, canary="slot2")}))
    assert [one.weight for one in after.servers] == [16, 160, 16, 16]


def test_a_canary_that_is_gone_leaves_the_shares_even() -> None:
    found = backend(server("slot1"), server("slot2", weight=70), server("slot3"))
    allowance = Allowance(limit=8, target=5, canary="10.0.0.9:80")
    after = carried_out(found, settings([found], {"be": allowance}))
    assert {one.weight for one in after.servers} == {16}


def test_no_canary_among_fewer_than_three() -> None:
    found = backend(server("slot1"), server("slot2"))
    assert settings([found], {"be": Allowance(limit=8, target=5, canary="slot1")}) == ()


def test_a_canary_is_known_by_slot_address_or_ip_while_it_serves() -> None:
    found = backend(server("slot1"), server("slot2"), server("slot3", state=ServerState.DRAINING))
    for name in ("slot2", "10.0.0.2:80", "10.0.0.2"):
        assert canary_of(found, name) is found.servers[1]
    for name in ("", "slot3", "10.0.0", "10.0.0.22"):
        assert canary_of(found, name) is None
