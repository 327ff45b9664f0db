from __future__ import annotations

import pytest

from fleet import labels
from fleet.device import AskKind, DeviceAsk
from fleet.kube.decode import pod_from
from fleet.pod import Pod
from tests.support.builders import pod_json, pod_object


def read(requests: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> Pod:
    return pod_from(pod_object(pod_json(requests=requests, annotations=annotations)))


def share(milli: int = 0, mib: int = 0, count: int = 1) -> DeviceAsk:
    return DeviceAsk(kind=AskKind.SHARE, count=count, milli_gpu=milli, memory_mib=mib)


@pytest.mark.parametrize(
    ("requests", "annotations", "ask"),
    [
        ({"cpu": "1"}, {}, None),
        ({labels.GPU_MILLI: "0"}, {}, None),
        ({labels.NVIDIA_GPU: "2"}, {}, DeviceAsk(kind=AskKind.CLASSIC, count=2)),
        ({labels.GPU: "4"}, {}, DeviceAsk(kind=AskKind.CHOSEN, count=4)),
        ({labels.GPU_MILLI: "250"}, {}, share(250)),
        ({labels.GPU_MILLI: "1000"}, {}, share(1000)),
        ({labels.GPU_MEMORY_MIB: "2000"}, {}, share(0, 2000)),
        ({labels.GPU_MILLI: "250", labels.GPU_MEMORY_MIB: "1e3"}, {}, share(250, 1000)),
        ({}, {labels.KAI_GPU_FRACTION: "0.5"}, share(500)),
        ({}, {labels.KAI_GPU_FRACTION: "0.3333"}, share(334)),
        ({}, {labels.KAI_GPU_MEMORY: "2000"}, share(0, 2000)),
        ({}, {labels.KAI_GPU_FRACTION: "0.5", labels.KAI_GPU_FRACTION_DEVICES: "2"}, share(500, count=2)),
        ({labels.NVIDIA_GPU: "2", labels.HAMI_MEMORY: "3000", labels.HAMI_CORES: "30"}, {}, share(300, 3000, 2)),
        ({labels.NVIDIA_GPU: "1", labels.HAMI_MEMORY: "3000"}, {}, share(0, 3000)),
        ({labels.HAMI_MEMORY: "3000"}, {}, share(0, 3000)),
        ({labels.NVIDIA_GPU: "1", labels.HAMI_CORES: "30"}, {}, share(1000)),
        ({labels.NVIDIA_GPU: "1", labels.HAMI_CORES: "30", labels.HAMI_MEMORY_PERCENTAGE: "50"}, {}, share(500)),
        ({labels.NVIDIA_GPU: "1", labels.HAMI_MEMORY_PERCENTAGE: "50", labels.HAMI_MEMORY: "7"}, {}, share(0, 7)),
    ],
)
def test_every_dialect_is_understood(
    requests: dict[str, str], annotations: dict[str, str], ask: DeviceAsk | None
) -> None:
    pod = read(requests, annotations)
    assert (pod.ask, pod.problems) == (ask, ())


@pytest.mark.parametrize(
    ("requests", "annotations", "words"),
    [
        ({labels.GPU_MILLI: "1001"}, {}, ("1001", labels.GPU_MILLI)),
        ({labels.GPU_MILLI: "250m"}, {}, (labels.GPU_MILLI, "250m")),
        ({labels.GPU_MEMORY_MIB: "-5"}, {}, (labels.GPU_MEMORY_MIB, "-5")),
        ({labels.GPU: "1", labels.GPU_MILLI: "100"}, {}, ("2 ways", labels.GPU, labels.GPU_MILLI)),
        ({labels.GPU: "1", labels.NVIDIA_GPU: "1"}, {}, ("2 ways", labels.NVIDIA_GPU)),
        ({labels.NVIDIA_GPU: "1", labels.GPU_MEMORY_MIB: "10"}, {}, ("2 ways", labels.GPU_MEMORY_MIB)),
        ({labels.NVIDIA_GPU: "1"}, {labels.KAI_GPU_FRACTION: "0.5"}, ("2 ways", "KAI")),
        ({labels.HAMI_CORES: "101"}, {}, (labels.HAMI_CORES, "1010")),
        ({}, {labels.KAI_GPU_FRACTION: "half"}, (labels.KAI_GPU_FRACTION, "half")),
        ({}, {labels.KAI_GPU_FRACTION: "1.5"}, (labels.KAI_GPU_FRACTION, "1500")),
        ({}, {labels.KAI_GPU_FRACTION: "0"}, (labels.KAI_GPU_FRACTION, "nothing")),
        ({}, {labels.KAI_GPU_FRACTION: "nan"}, (labels.KAI_GPU_FRACTION, "nan")),
        ({}, {labels.KAI_GPU_MEMORY: "1.5"}, (labels.KAI_GPU_MEMORY, "1.5")),
        ({}, {labels.KAI_GPU_FRACTION: "0.5", labels.KAI_GPU_MEMORY: "100"}, ("exclude",)),
        ({}, {labels.KAI_GPU_FRACTION: "0.5", labels.KAI_GPU_FRACTION_DEVICES: "x"}, ("'x'",)),
        ({labels.GPU: "1"}, {labels.GPU_MODELS: "H100,,A100"}, (labels.GPU_MODELS,)),
        ({labels.GPU: "1"}, {labels.GPU_MODELS: "H100=one"}, (labels.GPU_MODELS, "H100=one")),
        ({labels.GPU: "1"}, {labels.GPU_MODELS: ""}, (labels.GPU_MODELS,)),
        ({labels.GPU: "1"}, {labels.GPU_MODELS: "A100=2"}, (labels.GPU_MODELS, "1 device")),
    ],
)
def test_what_cannot_be_read_is_a_problem_and_never_a_smaller_ask(
    requests: dict[str, str], annotations: dict[str, str], words: tuple[str, ...]
) -> None:
    pod = read(requests, annotations)
    assert pod.ask is None
    assert len(pod.problems) == 1
    assert all(word in pod.problems[0] for word in words), pod.problems


def test_two_containers_share_one_device_and_are_summed() -> None:
    parts = [
        {"name": n, "resources": {"requests": {labels.GPU_MILLI: "300", labels.GPU_MEMORY_MIB: "100"}}} for n in "ab"
    ]
    assert pod_from(pod_object(pod_json(containers=parts))).ask == share(600, 200)
    assert pod_from(pod_object(pod_json(containers=parts + parts))).problems


def test_a_request_of_which_a_part_cannot_be_read_is_not_the_rest_of_it() -> None:
    parts = [{"name": n, "resources": {"requests": {labels.GPU_MILLI: text}}} for n, text in (("a", "300"), ("b", "x"))]
    pod = pod_from(pod_object(pod_json(containers=parts)))
    assert pod.ask is None
    assert "container b" in pod.problems[0]


def test_hami_counts_stay_where_the_scheduler_counts_them() -> None:
    assert read({labels.NVIDIA_GPU: "2", labels.HAMI_MEMORY: "10"}).requests.of(labels.NVIDIA_GPU) == 2


def test_models_are_ordered_and_other_counts_are_left_to_candidates() -> None:
    pod = read({labels.GPU: "1"}, {labels.GPU_MODELS: "H100=1, H200 , A100=2,H100"})
    assert pod.ask is not None
    assert (pod.ask.models, pod.ask.is_ordered) == (("H100", "H200"), True)
    assert pod.unmodelled == ("gpu-models with other counts",)


def test_models_without_an_ask_mean_nothing() -> None:
    pod = read({"cpu": "1"}, {labels.GPU_MODELS: "H100"})
    assert (pod.ask, pod.problems) == (None, ())


def test_hamis_types_are_a_set_and_its_other_wishes_are_not_modelled() -> None:
    pod = read({labels.HAMI_MEMORY: "10"}, {labels.HAMI_USE_MODELS: "A100, V100", labels.HAMI_AVOID_UUIDS: "GPU-1"})
    assert pod.ask is not None
    assert (pod.ask.models, pod.ask.is_ordered) == (("A100", "V100"), False)
    assert pod.unmodelled == (f"annotation {labels.HAMI_AVOID_UUIDS}",)


def test_an_annotation_of_any_size_is_not_kept() -> None:
    pod = read({labels.GPU: "1"}, {labels.GPU_MODELS: ",".join(["H100"] * 1000)})
    assert pod.ask is None
    assert pod.problems == (f"annotation {labels.GPU_MODELS} is longer than 4096 characters",)
