"""What the planner said of a pod: written for exactly this pod, and read back."""

from __future__ import annotations

import msgspec
import pytest

from fleet import labels
from fleet.kube.decode import pod_from
from fleet.kube.events import EventRecorder
from fleet.kube.patches import condition_patch
from tests.support.builders import a_node, pod_json, pod_object
from tests.support.clock import ManualClock


def conditions(*given: tuple[str, str]) -> dict:
    obj = pod_json()
    obj["status"]["conditions"] = [{"type": kind, "status": status} for kind, status in given]
    return obj


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param([], False, id="nothing said"),
        pytest.param([(labels.WAITING_CONDITION, "True")], True, id="waits"),
        pytest.param([(labels.WAITING_CONDITION, "False")], False, id="waited once"),
        pytest.param([("PodScheduled", "True")], False, id="another condition"),
        pytest.param([("PodScheduled", "False"), (labels.WAITING_CONDITION, "True")], True, id="among others"),
    ],
)
def test_whether_a_pod_says_that_it_waits(given, expected):
    assert pod_from(pod_object(conditions(*given))).says_waiting is expected


def test_a_condition_can_be_meant_for_one_uid_alone():
    words = {"status": True, "reason": "Insufficient", "message": "m", "at": "2026-01-01T00:00:00Z"}
    guarded = msgspec.json.decode(condition_patch(labels.WAITING_CONDITION, uid="u1", **words))
    assert guarded["metadata"] == {"uid": "u1"}
    assert "metadata" not in msgspec.json.decode(condition_patch(labels.WAITING_CONDITION, **words))


class Posts:
    def __init__(self) -> None:
        self.created: list[tuple[str, dict]] = []

    async def create(self, path: str, body: bytes, **_: object) -> bytes:
        self.created.append((path, msgspec.json.decode(body)))
        return b"{}"


async def test_an_event_on_a_node_stands_in_the_default_namespace_and_names_no_namespace_of_its_own():
    posts = Posts()
    recorder = EventRecorder(posts, ManualClock(), "berthmaster.dev/planner")
    await recorder.record(a_node("n1", uid="u-n1"), reason="DevicesClosed", note="why", is_warning=True)
    ((path, event),) = posts.created
    assert path == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert event["metadata"]["namespace"] == "default"
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u-n1"}
