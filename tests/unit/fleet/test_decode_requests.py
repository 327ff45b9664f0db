"""Effective requests; the numbers follow k8s.io/component-helpers resource.PodRequests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet import labels
from fleet.kube.requests import requests_of
from fleet.resources import UNLIMITED
from tests.support.builders import pod_json, pod_object

GIB = 2**30


def container(
    name: str = "c", *, sidecar: bool = False, limits: Mapping[str, Any] | None = None, **requests: Any
) -> Any:
    body: dict[str, Any] = {"name": name, "resources": {"requests": requests}}
    if limits:
        body["resources"]["limits"] = limits
    if sidecar:
        body["restartPolicy"] = "Always"
    return body


def read(*containers: Any, init: tuple[Any, ...] = (), **spec: Any) -> Any:
    return requests_of(pod_object(pod_json(containers=containers, initContainers=list(init), **spec)).spec)


def test_app_containers_are_summed_and_one_slot_is_taken() -> None:
    resources = read(container(cpu="500m", memory="1Gi"), container(cpu=1.5, memory=GIB)).resources
    assert (resources.milli_cpu, resources.memory_bytes, resources.pod_slots) == (2000, 2 * GIB, 1)


def test_the_largest_init_container_counts_alone() -> None:
    resources = read(container(cpu="1", memory="4Gi"), init=(container(cpu="3"), container(memory="5Gi"))).resources
    assert (resources.milli_cpu, resources.memory_bytes) == (3000, 5 * GIB)


def test_an_init_container_runs_beside_the_sidecars_started_before_it() -> None:
    late = read(container(cpu="1"), init=(container(cpu="4"), container(cpu="2", sidecar=True))).resources
    early = read(container(cpu="1"), init=(container(cpu="2", sidecar=True), container(cpu="4"))).resources
    assert late.milli_cpu == 4000, "max(4, 1 + 2)"
    assert early.milli_cpu == 6000, "max(2 + 4, 1 + 2)"


def test_sidecars_run_beside_the_app() -> None:
    init = (container(cpu="1", sidecar=True), container(cpu="1", sidecar=True))
    assert read(container(cpu="3"), init=init).resources.milli_cpu == 5000


def test_phases_are_compared_resource_by_resource() -> None:
    resources = read(container(cpu="4", memory="1Gi"), init=(container(cpu="1", memory="9Gi"),)).resources
    assert (resources.milli_cpu, resources.memory_bytes) == (4000, 9 * GIB)


def test_limits_stand_in_for_requests_that_are_left_out() -> None:
    resources = read(container(cpu="1", limits={"cpu": "2", "memory": "3Gi", "nvidia.com/gpu": 2})).resources
    assert (resources.milli_cpu, resources.memory_bytes, resources.of("nvidia.com/gpu")) == (1000, 3 * GIB, 2)


def test_overhead_comes_on_top_of_the_larger_phase() -> None:
    requests = read(container(cpu="1"), init=(container(cpu="3"),), overhead={"cpu": "250m", "memory": "64Mi"})
    assert (requests.resources.milli_cpu, requests.resources.memory_bytes) == (3250, 64 * 2**20)


def test_pod_level_requests_replace_the_sum_of_the_containers() -> None:
    level = {"requests": {"cpu": "2", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": "7"}, "limits": {"memory": "8Gi"}}
    resources = read(container(cpu="3", memory="1Gi"), resources=level, overhead={"cpu": "1"}).resources
    assert resources.milli_cpu == 3000, "2 + overhead"
    assert resources.memory_bytes == GIB, "a pod limit does not replace what containers request"
    assert resources.extended == (("hugepages-2Mi", 4 * 2**20),), "other resources have no pod level"


def test_pod_level_limits_stand_in_where_no_container_requests_anything() -> None:
    assert read(container(cpu="3"), resources={"limits": {"memory": "8Gi"}}).resources.memory_bytes == 8 * GIB


def test_every_other_resource_is_kept_and_ours_are_kept_apart() -> None:
    requests = read(
        container(
            **{
                "ephemeral-storage": "1Gi",
                "nvidia.com/gpu": "2",
                "nvidia.com/mig-1g.10gb": "3",
                labels.GPU_MILLI: "300",
                labels.HAMI_MEMORY: "4000",
                "example.com/zero": "0",
            }
        )
    )
    assert dict(requests.resources.extended) == {
        "ephemeral-storage": GIB,
        "nvidia.com/gpu": 2,
        "nvidia.com/mig-1g.10gb": 3,
    }
    assert dict(requests.devices) == {"nvidia.com/gpu": 2, labels.GPU_MILLI: 300, labels.HAMI_MEMORY: 4000}


def test_parts_of_a_byte_are_summed_before_they_are_rounded_up() -> None:
    assert read(container(memory="500m"), container(memory="500m")).resources.memory_bytes == 1


def test_what_cannot_be_read_is_named_with_container_resource_and_value() -> None:
    requests = read(container("main", **{labels.GPU_MEMORY_MIB: "0.5"}), init=(container("warm", cpu="lots"),))
    assert len(requests.problems) == 2
    assert all(word in requests.problems[0] for word in ("container main", labels.GPU_MEMORY_MIB, "'0.5'"))
    assert all(word in requests.problems[1] for word in ("init container warm", "cpu", "'lots'"))


@pytest.mark.parametrize("name", ["cpu", "memory", labels.GPU_MEMORY_MIB, "example.com/x"])
def test_absurd_amounts_are_named_and_stay_within_64_bits(name: str) -> None:
    requests = read(container(**{name: str(10**30)}))
    assert name in requests.problems[0]
    amounts = [requests.resources.milli_cpu, requests.resources.memory_bytes, *dict(requests.devices).values()]
    assert max([*amounts, *dict(requests.resources.extended).values()]) == UNLIMITED


PART = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 50), max_size=3)


@given(
    apps=st.lists(PART, min_size=1, max_size=3), inits=st.lists(st.tuples(st.booleans(), PART), max_size=4), over=PART
)
def test_effective_requests_equal_a_walk_through_the_pods_life(
    apps: list[dict[str, int]], inits: list[tuple[bool, dict[str, int]]], over: dict[str, int]
) -> None:
    """Formula: max over all moments of what runs at that moment, plus overhead, for each resource by itself."""
    for name in ("cpu", "memory", "nvidia.com/gpu"):
        beside, moments = 0, []
        for is_sidecar, part in inits:
            moments.append(beside + part.get(name, 0))
            beside += part.get(name, 0) if is_sidecar else 0
        moments.append(beside + sum(part.get(name, 0) for part in apps))
        resources = read(
            *(container(**part) for part in apps),
            init=tuple(container(sidecar=is_sidecar, **part) for is_sidecar, part in inits),
            overhead=over,
        ).resources
        found = {"cpu": resources.milli_cpu // 1000, "memory": resources.memory_bytes}
        assert found.get(name, resources.of(name)) == max(moments) + over.get(name, 0)
