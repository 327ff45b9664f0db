"""On which nodes a pod's volume claims let it run, and when nobody can say yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binpack import fit
from binpack.controller.lookups import Lookups
from binpack.volumes import REGION, ZONE, VolumeBook, rules_of
from fleet import labels
from fleet.company import Guest, PodTerm, Selector
from fleet.constraints import Mismatch, NodeTerm, Requirement
from fleet.plan import Reason
from fleet.pod import Pod
from fleet.volumes import NO_PROVISIONER, Claim, StorageClass, Volume
from tests.support.builders import a_node, a_pod, a_state
from tests.support.planning import a_world

BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"


def in_zone(*zones: str) -> NodeTerm:
    return NodeTerm(labels=(Requirement(key=ZONE, operator="In", values=zones),))


def a_mounting_pod(*claims: str) -> Pod:
    return replace(a_pod("p", milli_cpu=100), claims=claims, unmodelled=(labels.VOLUME_CLAIMS,))


def a_book() -> VolumeBook:
    book = VolumeBook()
    book.is_known = True
    book.set_volume(Volume(name="pv-a", terms=(in_zone("a"),)))
    book.set_volume(Volume(name="pv-b", terms=(in_zone("b"),)))
    book.set_class(StorageClass(name="slow", provisioner="csi", waits_for_pod=True, terms=(in_zone("a", "b"),)))
    book.set_class(StorageClass(name="eager", provisioner="csi"))
    book.set_class(StorageClass(name="local", provisioner=NO_PROVISIONER, waits_for_pod=True))
    return book


def a_claim(name: str = "data", **words: str | bool) -> Claim:
    return Claim(namespace="default", name=name, **words)  # type: ignore[arg-type]


def zones_allowed(pod: Pod) -> str:
    """Return the zones of the nodes that the pod may use; "-" stands for a node without a zone."""
    nodes = [a_node(zone, labels={} if zone == "-" else {ZONE: zone}) for zone in ("a", "b", "c", "-")]
    return "".join(node.name for node in nodes if fit.mismatch(pod, node) is None)


@pytest.mark.parametrize(
    ("claim", "zones", "is_sure"),
    [
        pytest.param(a_claim(volume="pv-a", is_bound=True), "a", True, id="bound"),
        pytest.param(a_claim(volume="pv-a", is_bound=True, is_for_one_pod=True), "a", False, id="bound for one pod"),
        pytest.param(a_claim(class_name="slow"), "ab", True, id="to be made where the class says"),
        pytest.param(a_claim(class_name="slow", selected_node="b"), "b", True, id="begun on a node"),
        pytest.param(a_claim(class_name="slow", is_for_one_pod=True), "ab", False, id="for one pod"),
        pytest.param(a_claim(class_name="local"), "abc-", False, id="one of those that are there"),
    ],
)
def test_a_claim_says_where(claim: Claim, zones: str, is_sure: bool) -> None:
    book = a_book()
    book.set_claim(claim)
    pod = book.resolved(a_mounting_pod("data"))
    assert zones_allowed(pod) == zones
    assert (pod.unmodelled == ()) is is_sure
    assert book.lacks(pod) == ""


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        pytest.param(None, "claim data does not exist", id="missing"),
        pytest.param(a_claim(class_name="slow", is_leaving=True), "claim data is being deleted", id="leaving"),
        pytest.param(a_claim(volume="pv-x", is_bound=True), "volume pv-x, which does not exist", id="volume gone"),
        pytest.param(a_claim(volume="pv-a", class_name="slow"), "claim data is not bound yet", id="half bound"),
        pytest.param(a_claim(class_name="eager"), "claim data is not bound yet", id="immediate"),
        pytest.param(a_claim(), "no storage class", id="no class"),
        pytest.param(a_claim(class_name="none"), "storage class none, which does not exist", id="class gone"),
    ],
)
def test_a_claim_that_says_nothing_yet_is_waited_for(claim: Claim | None, words: str) -> None:
    book = a_book()
    if claim is not None:
        book.set_claim(claim)
    assert words in book.lacks(a_mounting_pod("data"))
    assert labels.VOLUME_CLAIMS in book.resolved(a_mounting_pod("data")).unmodelled


def test_several_claims_must_all_be_reached() -> None:
    book = a_book()
    book.set_claim(a_claim("one", volume="pv-a", is_bound=True))
    book.set_claim(a_claim("two", class_name="slow"))
    assert zones_allowed(book.resolved(a_mounting_pod("one", "two"))) == "a"
    book.set_claim(a_claim("two", volume="pv-b", is_bound=True))
    assert zones_allowed(book.resolved(a_mounting_pod("one", "two"))) == ""


def test_a_driver_that_tells_its_capacity_leaves_the_choice_to_kube_scheduler() -> None:
    book = a_book()
    book.set_claim(a_claim(class_name="slow"))
    book.set_driver("csi", tells_capacity=True)
    assert labels.VOLUME_CLAIMS in book.resolved(a_mounting_pod("data")).unmodelled
    book.set_driver("csi", tells_capacity=False)
    assert book.resolved(a_mounting_pod("data")).unmodelled == ()


def test_before_all_is_listed_nothing_is_said() -> None:
    book = a_book()
    book.is_known = False
    pod = a_mounting_pod("data")
    assert book.resolved(pod) is pod
    assert book.lacks(pod) == ""


@pytest.mark.parametrize(
    ("on_volume", "on_node", "is_allowed"),
    [
        ({ZONE: "a"}, {ZONE: "a"}, True),
        ({ZONE: "a"}, {ZONE: "b"}, False),
        ({ZONE: "a__b"}, {ZONE: "b"}, True),
        ({ZONE: "a"}, {}, True),  # a node without any zone or region is in all of them
        ({ZONE: "a"}, {REGION: "r"}, False),
        ({BETA_ZONE: "a"}, {ZONE: "a"}, True),
        ({BETA_ZONE: "a"}, {BETA_ZONE: "b", ZONE: "a"}, False),
        ({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "s"}, False),
    ],
)
def test_zone_labels_of_a_volume_bind_nodes_that_are_in_a_zone(
    on_volume: dict[str, str], on_node: dict[str, str], is_allowed: bool
) -> None:
    rules = rules_of(Volume(name="pv", labels=tuple(sorted(on_volume.items()))))
    pod = a_pod("p")
    pod = replace(pod, constraints=replace(pod.constraints, volumes=rules))
    assert (fit.mismatch(pod, a_node("n", labels=on_node)) is None) is is_allowed
    if not is_allowed:
        assert fit.mismatch(pod, a_node("n", labels=on_node)) is Mismatch.VOLUME


# -- in the planner's world ---------------------------------------------------------------------------------------


def test_a_pod_waits_for_its_claim_and_is_planned_where_the_volume_is() -> None:
    world = a_world(a_node("n-a", labels={ZONE: "a"}), a_node("n-b", labels={ZONE: "b"}))
    world.lookups.volumes = a_book()
    world.pod_seen(a_mounting_pod("data"))
    record = world.waiting.get("uid-p")
    assert record is not None
    assert record.reason is Reason.VOLUME
    assert record.text == "waits for its volumes: claim data does not exist"
    world.lookups.volumes.set_claim(a_claim(volume="pv-b", is_bound=True))
    world.lookups.has_news = True
    world.refresh()
    (pod,) = world.take_batch(9)
    assert [option.berth.node for option in world.index.options(pod, 9)] == ["n-b"]
    assert pod.unmodelled == ()


def test_a_pod_whose_claim_kube_scheduler_must_judge_goes_on_when_the_claim_is_there() -> None:
    world = a_world(a_node("n-a", labels={ZONE: "a"}))
    world.lookups.volumes = a_book()
    world.pod_seen(a_mounting_pod("data"))
    assert world.queue == {}
    world.lookups.volumes.set_claim(a_claim(class_name="local"))
    world.lookups.has_news = True
    world.refresh()
    assert list(world.queue) == ["uid-p"]


def test_a_pod_that_was_planned_for_a_volume_that_moved_is_planned_again() -> None:
    world = a_world(a_node("n-a", labels={ZONE: "a"}), a_node("n-b", labels={ZONE: "b"}))
    world.lookups.volumes = a_book()
    world.lookups.volumes.set_claim(a_claim(volume="pv-b", is_bound=True))
    world.pod_seen(a_mounting_pod("data"))
    (planned,) = world.take_batch(9)
    world.lookups.volumes.set_claim(a_claim(volume="pv-a", is_bound=True))
    world.lookups.has_news = True
    world.refresh()
    assert world.decided(planned) is None
    (again,) = world.take_batch(9)
    assert [option.berth.node for option in world.index.options(again, 9)] == ["n-a"]


def test_rules_that_select_namespaces_are_left_to_kube_scheduler_until_these_are_known() -> None:
    term = PodTerm(key="zone", selector=Selector(), namespace_selector=Selector(requirements=in_zone("a").labels))
    other = PodTerm(key="zone", selector=Selector(), namespaces=("default",))
    pod = replace(a_pod("p"), guest=Guest(anti=(term, other)), unmodelled=(labels.NAMESPACE_SELECTORS,))
    lookups = Lookups()
    assert lookups.resolved(pod).guest.anti == (other,)
    assert lookups.resolved(pod).unmodelled == (labels.NAMESPACE_SELECTORS,)
    lookups.knows_namespaces = lookups.has_news = True
    (renewed,) = lookups.renewed()
    assert renewed.guest.anti == (term, other)
    assert renewed.unmodelled == ()
    lookups.forget(pod.uid)
    lookups.has_news = True
    assert list(lookups.renewed()) == []


def test_a_state_knows_its_guests_and_no_gated_pod_is_one() -> None:
    guest = Guest(labels=(("app", "web"),))
    there, waiting = (replace(a_pod(name, node=node), guest=guest) for name, node in (("a", "n1"), ("b", "")))
    assert a_state(a_node("n1"), there, waiting).guests == (guest,)
