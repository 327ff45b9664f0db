"""The choice of ports: free, different, and not promised to another cluster."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berthmaster.local import ports
from fleet.errors import LocalClusterError

NAMES = ["a", "b", "c", "d"]


@given(st.integers(0, 1000), st.sets(st.integers(20_000, 32_767), max_size=200), st.integers(2, 7))
def test_ports_are_different_free_and_unpromised(seed: int, promised: set[int], every: int) -> None:
    chosen = ports.choose(NAMES, promised=promised, free=lambda port: port % every == 0, seed=seed)
    assert list(chosen) == NAMES
    assert len(set(chosen.values())) == len(NAMES)
    assert not set(chosen.values()) & promised
    assert all(port % every == 0 for port in chosen.values())


@given(st.integers(0, 1000), st.sets(st.integers(0, 9), max_size=6))
def test_a_promised_port_is_left_alone_though_it_is_free(seed: int, taken: set[int]) -> None:
    promised = {20_000 + offset for offset in taken}
    chosen = ports.choose(NAMES, promised=promised, free=lambda port: port < 20_010, seed=seed)
    assert not set(chosen.values()) & promised


def test_ports_stay_below_those_of_outgoing_connections() -> None:
    seen = [
        port for seed in range(50) for port in ports.choose(NAMES, promised=(), free=lambda _: True, seed=seed).values()
    ]
    assert min(seen) >= 20_000
    assert max(seen) < 32_768


def test_nothing_free_is_an_error_not_an_endless_search() -> None:
    with pytest.raises(LocalClusterError, match="no 4 free ports"):
        ports.choose(NAMES, promised=(), free=lambda _: False)
    with pytest.raises(LocalClusterError):
        ports.choose(NAMES, promised=(), free=lambda port: port < 20_003)


def test_a_listened_port_is_not_free_until_it_is_closed() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert not ports.is_free(port)
    assert ports.is_free(port)
