"""The shipped trace is the published one, and a CSV that cannot be read says where."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from binpack.trace import empty_state, load_nodes, load_pods, traces
from fleet.device import AskKind
from fleet.errors import DecodeError

NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"


def test_the_nodes_are_those_of_the_published_runs() -> None:
    nodes = load_nodes()
    gpus: Counter[str] = Counter()
    for node in nodes:
        gpus[node.devices[0].model] += len(node.devices)
        assert node.is_sharing
        assert [device.id for device in node.devices] == [str(i) for i in range(len(node.devices))]
        assert node.labels == {"nvidia.com/gpu.product": node.devices[0].model}
    assert len(nodes) == 1213
    assert sum(node.allocatable.milli_cpu for node in nodes) // 1000 == 107_018
    assert gpus == {"G2": 4392, "T4": 842, "P100": 265, "V100M16": 195, "V100M32": 204, "G3": 312, "A10": 2}
    everything = load_nodes("openb-all")
    assert len(everything) == 1523
    assert sum(not node.devices and not node.is_sharing for node in everything) == 310


def test_the_default_pods_are_those_of_the_published_runs() -> None:
    pods = load_pods()
    kinds = Counter((pod.ask.kind, pod.ask.count) if pod.ask else None for pod in pods)
    assert len(pods) == 8152
    assert kinds == {
        (AskKind.CHOSEN, 1): 3911,
        (AskKind.SHARE, 1): 3078,
        (AskKind.CHOSEN, 8): 44,
        (AskKind.CHOSEN, 2): 16,
        (AskKind.CHOSEN, 4): 15,
        None: 1088,
    }
    assert sum(pod.ask.total_milli_gpu for pod in pods if pod.ask) == 6_086_800
    assert sum(pod.ask.total_milli_gpu for pod in pods if pod.ask and pod.ask.kind is AskKind.SHARE) == 1_731_800
    assert pods[0].requests.memory_bytes == 16_384 * 2**20


@pytest.mark.parametrize(
    "content", [gzip.compress(NODES.encode() * 99)[:-40] + b"x" * 40, f'{NODES}n1,"{"x" * 200_000}",1,1,T4'.encode()]
)
def test_a_damaged_file_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_bytes(content)
    with pytest.raises(DecodeError, match=r"nodes\.csv: cannot be read as CSV"):
        load_nodes(path)


@pytest.mark.parametrize(
    ("trace", "rows"), [("gpuspec33", 8152), ("multigpu50", 9061), ("cpu250", 9420), ("gpushare100", 8152)]
)
def test_other_traces_come_along(trace: str, rows: int) -> None:
    assert len(load_pods(trace)) == rows


def test_all_seventeen_published_traces_are_there() -> None:
    assert len(traces()) == 17
    assert "cpu0" not in traces()


def test_models_of_a_pod_are_read_in_their_order_without_repetition() -> None:
    wished = {pod.ask.models for pod in load_pods("gpuspec33") if pod.ask and len(pod.ask.models) == 2}
    assert ("V100M16", "V100M32") in wished
    assert not any(pod.ask.is_ordered for pod in load_pods("gpuspec33") if pod.ask)


def test_files_of_ones_own_are_read_plain_or_packed(tmp_path: Path) -> None:
    text = NODES + "n1,4000,8192,2,T4\nn2,1000,1024,0,\n"
    (tmp_path / "nodes.csv").write_text(text)
    (tmp_path / "nodes.csv.gz").write_bytes(gzip.compress(text.encode()))
    plain = load_nodes(tmp_path / "nodes.csv")
    assert plain == load_nodes(str(tmp_path / "nodes.csv.gz"))
    assert [len(empty_state(node).devices) for node in plain] == [2, 0]
    (tmp_path / "pods.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np1,1,1,1,470\n")
    (pod,) = load_pods(tmp_path / "pods.csv")
    assert pod.ask is not None
    assert pod.ask.milli_gpu == 470


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name\n", "no column cpu_milli, memory_mib, num_gpu, gpu_milli"),
        (PODS + "p,x,1,0,0,\n", "line 2: cpu_milli is 'x', wanted a whole number"),
        (PODS + "p,1,1,1,1000,\np,1,1,1,1000,\n", "line 3: name is 'p' a second time"),
        (PODS + ",1,1,1,1000,\n", "line 2: name is empty"),
        (PODS + "p,1,1,1,1001,\n", "line 2: gpu_milli is 1001, wanted 0 to 1000"),
        (PODS + "p,1,1,1,0,\n", "line 2: gpu_milli is 0 though num_gpu is 1"),
        (PODS + "p,-1,1,1,1,\n", "line 2: cpu_milli is -1, wanted 0"),
        (PODS + "p,1\n", "line 2: num_gpu is '', wanted a whole number"),
        (PODS + "p,nan,1,1,1,\n", "line 2: cpu_milli is 'nan'"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(text)
    with pytest.raises(DecodeError) as caught:
        load_pods(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)


def test_files_that_are_no_csv_are_named(tmp_path: Path) -> None:
    (tmp_path / "broken.gz").write_bytes(b"\x1f\x8b broken")
    (tmp_path / "image").write_bytes(b"\xff\xfe\x00")
    for name in ("broken.gz", "image", "missing", "."):
        with pytest.raises(DecodeError, match="cannot be read as CSV"):
            load_pods(tmp_path / name)
