"""Whatever the API, a webhook or a user writes into an object: parsing refuses it by name, or a value comes out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binpack import fit
from binpack.index import Index
from binpack.ledger import Ledger
from fleet import labels
from fleet.kube.decode import node_from, pod_from
from fleet.kube.objects import NodeObject, PodObject, ResourceSliceObject
from tests.support.builders import a_node, node_json, node_object, pod_json, pod_object, slice_json

RESOURCES = (
    "cpu",
    "memory",
    "pods",
    "",
    "nvidia.com/mig-1g.10gb",
    "hugepages-2Mi",
    labels.NVIDIA_GPU,
    *labels.IGNORED_BY_SCHEDULER,
)
odd_text = st.one_of(
    st.text(max_size=12),
    st.from_regex(r"[+-]?[0-9]{0,30}(\.[0-9]{0,30})?(e[+-]?[0-9]{1,4}|[kMGTPE]i?|[num])?", fullmatch=True),
    st.sampled_from(["", "nan", "inf", "-0", "1e999", "0x1", "१", "1 ", "16Gi", "9223372036854775808", "🚢", "\u0000"]),
)
quantity = st.one_of(odd_text, st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False))
quantities = st.dictionaries(st.sampled_from(RESOURCES) | st.text(max_size=8), quantity, max_size=4)
notes = st.dictionaries(
    st.sampled_from(
        [
            labels.DEVICES,
            labels.CANDIDATES,
            labels.GPU_MODELS,
            labels.KAI_GPU_FRACTION,
            labels.KAI_GPU_MEMORY,
            labels.KAI_GPU_FRACTION_DEVICES,
            labels.HAMI_USE_MODELS,
            labels.UNHEALTHY_DEVICES,
        ]
    ),
    odd_text | st.from_regex(r"[a-z0-9=,;]{0,20}", fullmatch=True),
    max_size=4,
)
node_labels = st.dictionaries(
    st.sampled_from([labels.DEVICE_SHARING, labels.GPU_COUNT, labels.GPU_MEMORY, labels.GPU_PRODUCT]),
    odd_text | st.just("true"),
    max_size=4,
)
containers = st.lists(
    st.builds(
        lambda name, requests, limits, policy: {
            "name": name,
            "resources": {"requests": requests, "limits": limits},
            "restartPolicy": policy,
        },
        st.text(max_size=5),
        quantities,
        quantities | st.none(),
        st.sampled_from([None, "Always", "Never", ""]),
    ),
    max_size=3,
)


@given(
    apps=containers,
    inits=containers,
    overhead=quantities | st.none(),
    level=quantities,
    annotations=notes,
    node=odd_text,
    phase=odd_text,
    created=odd_text,
    gates=st.lists(odd_text, max_size=2),
)
@settings(deadline=None, max_examples=150)
def test_any_pod_comes_out_and_can_be_counted_and_planned(
    apps: Any, inits: Any, overhead: Any, level: Any, annotations: Any, node: str, phase: str, created: str, gates: Any
) -> None:
    obj = pod_json(
        annotations=annotations,
        node=node,
        phase=phase,
        metadata={"creationTimestamp": created},
        initContainers=inits,
        overhead=overhead,
        resources={"requests": level},
        schedulingGates=[{"name": gate} for gate in gates],
    )
    obj["spec"]["containers"] = apps
    pod = pod_from(pod_object(obj))
    amounts = [pod.requests.milli_cpu, pod.requests.memory_bytes, *dict(pod.requests.extended).values()]
    assert all(0 <= amount <= 2**52 for amount in amounts)
    if pod.ask is not None:
        assert 0 <= pod.ask.milli_gpu <= 1000
        assert pod.ask.count >= 1
        assert pod.ask.milli_gpu + pod.ask.memory_mib > 0
    ledger = Ledger()
    ledger.set_node(a_node(node or "n1", gpus=2))
    ledger.set_pod(pod)
    index = Index()
    for name in ledger.names():
        state = ledger.state(name)
        assert state is not None
        fit.missing(pod, state)
        index.set_node(state)
    index.place(pod)
    ledger.warnings()


@given(
    allocatable=quantities,
    capacity=quantities,
    annotations=notes,
    labels_=node_labels,
    name=odd_text,
    memory=quantity | st.none(),
    generation=st.integers(-(2**63), 2**63 - 1),
)
@settings(deadline=None, max_examples=150)
def test_any_node_comes_out_and_can_be_indexed(
    allocatable: Any, capacity: Any, annotations: Any, labels_: Any, name: str, memory: Any, generation: int
) -> None:
    obj = node_json(name, labels=labels_, annotations=annotations)
    obj["status"] = {"allocatable": allocatable, "capacity": capacity}
    device = {"name": name, "attributes": {"uuid": {"string": name}}, "capacity": {"memory": {"value": memory}}}
    piece = slice_json(name, devices=[device, device], generation=generation)
    for slices in ([], [msgspec.convert(piece, ResourceSliceObject)]):
        node = node_from(node_object(obj), slices)
        assert len(node.devices) <= 1024
        ledger = Ledger()
        ledger.set_node(node)
        state = ledger.state(name)
        assert state is not None
        Index([state])


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b'{"metadata": 3}',
        b'{"spec": {"containers": {"name": "c"}}}',
        b'{"spec": {"containers": [{"resources": {"requests": {"cpu": true}}}]}}',
        b'{"spec": {"containers": [{"resources": {"requests": {"cpu": NaN}}}]}}',
        b'{"spec": {"containers": [{"resources": {"requests": {"cpu": 1e999}}}]}}',
        b'{"metadata": {"annotations": {"a": null}}}',
        b'{"metadata": {"name": "\xff"}}',
        b'{"status": {"allocatable": []}}',
        b"[" * 100_000,
    ],
)
def test_wrong_json_is_refused_by_parsing_and_by_nothing_later(raw: bytes) -> None:
    for kind in (PodObject, NodeObject):
        try:
            obj = msgspec.json.decode(raw, type=kind)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            continue
        if isinstance(obj, PodObject):
            assert pod_from(obj) is not None
        else:
            assert node_from(obj, ()) is not None
