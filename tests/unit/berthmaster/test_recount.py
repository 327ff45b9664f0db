"""The independent count finds every kind of over-allocation, and finds none where there is none."""

from __future__ import annotations

import copy
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berthmaster.recount import number, recount
from tests.support.builders import node_json, pod_json

GPU, MILLI, MIB = "berthmaster.dev/gpu", "berthmaster.dev/gpu-milli", "berthmaster.dev/gpu-memory-mib"


def a_machine(**words):
    return node_json(**({"gpus": 2, "labels": {"nvidia.com/gpu.memory": "100"}} | words))


def a_load(name, devices="", *, node="n1", candidates="", phase="Running", annotations=None, **requests):
    notes = dict(annotations or {})
    if devices:
        notes["berthmaster.dev/devices"] = devices
    if candidates:
        notes["berthmaster.dev/candidates"] = candidates
    amounts = {key.replace("__", "/").replace("_", "-"): value for key, value in requests.items()}
    return pod_json(name, requests=amounts, annotations=notes, node=node, phase=phase)


def load(name, devices="", **words):
    """A pod by short names: whole, milli, mib, cpu, memory, classic."""
    names = {"whole": GPU, "milli": MILLI, "mib": MIB, "classic": "nvidia.com/gpu", "cpu": "cpu", "memory": "memory"}
    requests = {names[key]: str(words.pop(key)) for key in list(words) if key in names}
    pod = a_load(name, devices, **words)
    pod["spec"]["containers"][0]["resources"]["requests"] = requests
    return pod


SOUND = [
    load("whole", "0", whole=1, cpu=1),
    load("share-a", "1", milli=400, mib=50),
    load("share-b", "1", milli=600, mib=50),
]


def test_a_sound_cluster_has_no_faults_and_right_sums():
    found = recount([a_machine()], [*SOUND, pod_json("waits", schedulingGates=[{"name": "g"}])])
    assert found.faults == ()
    assert (found.nodes, found.pods, found.bound, found.gated) == (1, 4, 3, 1)
    assert (found.gpu_milli, found.gpu_capacity_milli, found.allocated_ratio) == (2000, 2000, 1.0)


def test_an_empty_cluster_is_sound():
    assert recount([], []).allocated_ratio == 0.0
    assert recount([], []).faults == ()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        pytest.param([load("x", "1", milli=1)], "device n1/1 is given 1001 of 1000 milli-GPU", id="a milli too many"),
        pytest.param([load("x", "0", whole=1)], "device n1/0 is given 2000 of 1000", id="whole twice"),
        pytest.param([load("x", "0", milli=0, mib=1)], "given whole and has 2 holders", id="memory beside a whole"),
        pytest.param([load("x", "1", mib=1)], "device n1/1 is given 101 of 100 MiB", id="a MiB too many"),
        pytest.param([load("x", "2", whole=1)], "device n1/2 does not exist: the node has 2", id="no such device"),
        pytest.param([load("x", "", whole=1)], "asks for 1 devices and its record names []", id="no record"),
        pytest.param([load("x", "0,1", milli=1)], "asks for 1 devices and its record names", id="too many devices"),
        pytest.param([load("x", "0", whole=2)], "asks for 2 devices and its record names", id="too few devices"),
        pytest.param([load("x", "0,0", whole=2)], "asks for 2 devices and its record names", id="one device twice"),
        pytest.param([load("x", "0", cpu=1)], "asks for 0 devices and its record names ['0']", id="devices unasked"),
        pytest.param([load("x", cpu="63.001")], "given 64.001 of 64 cpu", id="a thousandth of a core too many"),
        pytest.param([load("x", memory=256 * 2**30 + 1)], "of 274877906944 memory", id="a byte too many"),
        pytest.param([load("x", classic=3)], "is given 3 of 2 nvidia.com/gpu", id="counted cards"),
        pytest.param([load(f"x{i}") for i in range(108)], "is given 111 of 110 pods", id="a pod too many"),
        pytest.param([load("x", node="gone", cpu=1)], "a node that does not exist: gone", id="no such node"),
        pytest.param(
            [load("x", candidates="n2=0;n1=1", milli=1)], "device n1/1 is given 1001", id="the candidate counts"
        ),
        pytest.param(
            [load("x", candidates="n2=0", milli=1)], "asks for 1 devices and its record names []", id="no candidate"
        ),
    ],
)
def test_each_kind_of_over_allocation_is_found(more, words):
    faults = recount([a_machine()], [*SOUND, *more]).faults
    assert len(faults) >= 1
    assert any(words in fault for fault in faults), faults


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(load("x", "0", whole=1, phase="Succeeded"), id="succeeded"),
        pytest.param(load("x", "0", whole=1, phase="Failed"), id="failed"),
        pytest.param(load("x", "0", whole=1, node=None), id="not bound"),
    ],
)
def test_who_holds_nothing_is_not_counted(pod):
    found = recount([a_machine()], [*SOUND, pod])
    assert found.faults == ()
    assert found.gpu_milli == 2000


def test_a_terminating_pod_still_holds_its_devices():
    going = load("x", "0", whole=1)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert recount([a_machine()], [*SOUND, going]).faults


def test_an_init_container_counts_by_its_peak():
    pod = load("x", cpu=1)
    pod["spec"]["initContainers"] = [{"name": "i", "resources": {"requests": {"cpu": "64"}}}]
    assert recount([a_machine()], [pod]).faults == ()
    assert recount([a_machine()], [pod, load("y", cpu="1m")]).faults


@pytest.mark.parametrize(
    ("requests", "notes", "devices", "milli", "mib"),
    [
        pytest.param({}, {"gpu-fraction": "0.5"}, "0", 500, 0, id="kai fraction"),
        pytest.param({}, {"gpu-fraction": "0.3333"}, "0", 334, 0, id="kai fraction rounds up"),
        pytest.param({}, {"gpu-memory": "60"}, "0", 0, 60, id="kai memory"),
        pytest.param({}, {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}, "0,1", 500, 0, id="kai several"),
        pytest.param({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "60"}, {}, "0", 0, 60, id="hami memory"),
        pytest.param({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "30"}, {}, "0", 1000, 0, id="hami cores alone"),
        pytest.param(
            {"nvidia.com/gpu": "2", "nvidia.com/gpucores": "30", "nvidia.com/gpumem": "10"},
            {},
            "0,1",
            300,
            10,
            id="hami two",
        ),
        pytest.param(
            {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "40"}, {}, "0", 400, 0, id="hami percentage"
        ),
    ],
)
def test_other_dialects_hold_what_they_ask(requests, notes, devices, milli, mib):
    pod = a_load("guest", devices, annotations=notes)
    pod["spec"]["containers"][0]["resources"]["requests"] = requests
    fits = load("fits", devices.split(",")[0], milli=1000 - milli, mib=100 - mib)
    if milli < 1000:
        assert recount([a_machine()], [pod, fits]).faults == ()
    more = copy.deepcopy(fits)
    more["spec"]["containers"][0]["resources"]["requests"] = {MILLI: str(1001 - milli), MIB: "1"}
    assert any("milli-GPU" in fault for fault in recount([a_machine()], [pod, more]).faults)
    if mib:
        more["spec"]["containers"][0]["resources"]["requests"] = {MIB: str(101 - mib)}
        assert any("MiB" in fault for fault in recount([a_machine()], [pod, more]).faults)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 700)), max_size=8))
def test_faults_are_found_exactly_when_a_card_is_given_beyond_itself(shares):
    pods = [load(f"p{i}", str(device), milli=milli) for i, (device, milli) in enumerate(shares)]
    beyond = {device for device in (0, 1) if sum(milli for on, milli in shares if on == device) > 1000}
    found = recount([a_machine()], pods)
    assert len(found.faults) == len(beyond)
    assert found.gpu_milli == sum(milli for _, milli in shares)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", "0"),
        ("500m", "0.5"),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("1.5Gi", "1610612736"),
        ("2E", "2e18"),
        ("1Ei", str(2**60)),
        ("100k", "100000"),
        ("7n", "7e-9"),
        (".5", "0.5"),
        (3, "3"),
    ],
)
def test_quantities(text, value):
    assert number(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "Gi", ".", "1Q", "1 Gi", "NaN", "--1", "1e", "0x10"])
def test_what_is_no_quantity_is_refused(text):
    with pytest.raises(ValueError, match="is not a quantity"):
        number(text)
