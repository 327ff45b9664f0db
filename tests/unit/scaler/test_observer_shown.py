"""What the observer shows: DCGM's names and labels, pods by their processes, nothing once it knows nothing."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from fleet.errors import ConfigError
from fleet.http import Http
from scaler.observer import nvml as nvml_file
from scaler.observer.exposition import families
from scaler.observer.pods import NodePods, pods_by_uid, uid_of
from scaler.observer.readings import DeviceReading, Field
from scaler.observer.service import Look, Window, run_observer
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.fake_nvml import Card, FakeNvml

UID = "8b6cfa49-3c1f-4a86-9f0a-6f2b0f1c2d3e"
DEVICE = '{GPU_I_ID="",GPU_I_PROFILE="",Hostname="node-1",UUID="GPU-a",device="nvidia3",gpu="3",modelName="H100"'


def shown(readings: list[DeviceReading], pods: dict[int, tuple[str, str]]) -> str:
    class Once(Collector):
        def collect(self) -> object:
            return families(readings, pods, "node-1")

    registry = CollectorRegistry()
    registry.register(Once())
    return generate_latest(registry).decode()


def reading(**given: object) -> DeviceReading:
    return DeviceReading(**{"gpu": 3, "uuid": "GPU-a", "model": "H100", "values": {Field.FB_USED: 30_000.0}, **given})


def test_names_labels_and_absence() -> None:
    text = shown([reading(processes=(7, 9))], {7: ("shop", "a")})
    assert text == (
        "# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB).\n"
        "# TYPE DCGM_FI_DEV_FB_USED gauge\n"
        f'DCGM_FI_DEV_FB_USED{DEVICE},namespace="shop",pod="a"}} 30000.0\n'
    )


def test_a_shared_device_names_each_pod_once_and_a_free_one_none() -> None:
    text = shown([reading(processes=(7, 8, 9))], {7: ("shop", "a"), 8: ("shop", "b"), 9: ("shop", "a")})
    assert [line.split(",namespace=")[1] for line in text.splitlines() if line.startswith("DCGM")] == [
        '"shop",pod="a"} 30000.0',
        '"shop",pod="b"} 30000.0',
    ]
    assert ',namespace="",pod=""}' in shown([reading()], {})


def test_instances_carry_their_number_and_profile() -> None:
    text = shown([reading(instance=0, profile="1g.10gb")], {})
    assert 'GPU_I_ID="0",GPU_I_PROFILE="1g.10gb"' in text


def test_odd_names_are_escaped() -> None:
    assert r'modelName="a\"b\\c\nd"' in shown([reading(model='a"b\\c\nd')], {})


@pytest.mark.parametrize(
    ("cgroup", "uid"),
    [
        (
            "0::/kubepods.slice/kubepods-burstable.slice/"
            f"kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-containerd-ab12.scope\n",
            UID,
        ),
        (f"0::/kubepods/besteffort/pod{UID}/0123abcd\n", UID),
        (f"0::/../../pod{UID}/0123abcd\n", UID),  # seen from inside another cgroup namespace
        (f"12:memory:/kubepods/pod{UID}/x\n11:cpu:/kubepods/pod{UID}/x\n", UID),
        ("0::/kubepods/burstable/pod0123456789abcdef0123456789abcdef/x\n", "0123456789abcdef0123456789abcdef"),
        ("0::/user.slice/user-1000.slice/session-2.scope\n", None),
        ("0::/system.slice/podman-12345678.scope\n", None),
        ("", None),
    ],
)
def test_the_cgroup_names_the_pod(cgroup: str, uid: str | None) -> None:
    assert uid_of(cgroup) == uid


def test_the_log_folder_names_the_pods() -> None:
    assert pods_by_uid([f"shop_web-1_{UID}", "odd", "a_b", "a__c", "a_b_c_d"]) == {UID: ("shop", "web-1")}


def test_processes_find_their_pods_and_what_is_unreadable_has_none(tmp_path: Path) -> None:
    proc, logs = tmp_path / "proc", tmp_path / "logs"
    for pid, cgroup in ((7, f"0::/kubepods/pod{UID}/x\n"), (8, "0::/init.scope\n"), (9, f"0::/pod{UID[:-1]}0/x\n")):
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "cgroup").write_text(cgroup)
    pods = NodePods(proc, logs)
    assert pods.of([7]) == {}  # no log folder
    (logs / f"shop_web-1_{UID}").mkdir(parents=True)
    assert pods.of([7, 7, 8, 9, 10]) == {7: ("shop", "web-1")}
    assert pods.of([]) == {}


def text_of(window: Window) -> str:
    registry = CollectorRegistry()
    registry.register(window)
    return generate_latest(registry).decode()


async def test_an_old_look_shows_nothing() -> None:
    clock = ManualClock()
    window = Window("node-1", clock, stale_after_s=15.0)
    assert window.not_ready() == "no look at the devices has ended lately"
    window.look = Look(at_s=clock.monotonic_s(), readings=(reading(),))
    assert window.not_ready() == ""
    assert "DCGM_FI_DEV_FB_USED{" in text_of(window)
    await clock.advance(15.0)
    assert window.is_fresh
    await clock.advance(0.1)
    assert "DCGM" not in text_of(window)
    assert "berthmaster_observer_devices 0.0" in text_of(window)
    window.look = Look(at_s=clock.monotonic_s())
    assert window.not_ready() == "no device can be read"


def test_without_the_binding_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    with pytest.raises(ConfigError, match="nvidia-ml-py"):
        nvml_file.load()


class Hanging(FakeNvml):
    """Answers until it is told to hang, as a driver does in a device's reset."""

    def __init__(self, *cards: Card) -> None:
        super().__init__(*cards)
        self.goes_on = threading.Event()
        self.goes_on.set()

    def count(self) -> int:
        assert self.goes_on.wait(60)
        return super().count()


async def test_it_serves_what_it_saw_and_answers_while_the_driver_hangs(tmp_path: Path) -> None:
    nvml = Hanging(Card())
    clock = ManualClock()
    ports: asyncio.Queue[int] = asyncio.Queue()
    async with Http() as http:
        running = asyncio.ensure_future(
            run_observer(
                host="127.0.0.1",
                port=0,
                hostname="node-1",
                period_s=5.0,
                clock=clock,
                nvml=nvml,
                pods=NodePods(tmp_path, tmp_path),
                started=ports.put_nowait,
            )
        )
        try:
            url = f"http://127.0.0.1:{await ports.get()}"

            async def metrics() -> str:
                return (await http.get(f"{url}/metrics", timeout_s=5.0)).decode()

            await clock.until_sleeping()
            assert 'DCGM_FI_DEV_GPU_UTIL{GPU_I_ID=""' in await metrics()
            nvml.cards[0].faults["power_w"] = "unknown error"
            await clock.advance(5.0)
            await clock.until_sleeping()
            text = await metrics()
            assert "DCGM_FI_PROF_DRAM_ACTIVE{" in text
            assert "DCGM_FI_DEV_POWER_USAGE" not in text
            assert 'berthmaster_observer_nvml_errors_total{asked="power",reason="unknown error"} 1.0' in text
            nvml.goes_on.clear()
            await clock.advance(20.0)
            assert "DCGM" not in await metrics()
            nvml.goes_on.set()
            await eventually(metrics, lambda text: "DCGM" in text, what="series come again")
        finally:
            nvml.goes_on.set()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
