"""Small random clusters and batches for property tests of planning."""

from __future__ import annotations

from hypothesis import strategies as st

from binpack.state import DeviceState, NodeState
from fleet.constraints import NodeConstraints, Taint, Toleration
from fleet.device import DeviceAsk
from fleet.pod import Pod
from tests.support.berths import card, chosen, classic, pod, seat, share

MODELS = ("G2", "T4")
SHARES = (100, 250, 320, 470, 500, 810)
TAINT = Taint(key="dedicated", value="x")
CONSTRAINTS = (
    NodeConstraints(),
    NodeConstraints(node_selector=(("zone", "a"),)),
    NodeConstraints(tolerations=(Toleration(key="dedicated", operator="Exists"),)),
)


@st.composite
def devices(draw: st.DrawFn, name: str, model: str) -> DeviceState:
    """A device in some state of use."""
    memory_mib = draw(st.sampled_from((None, 16_000)))
    free_milli = draw(st.sampled_from((1000, 1000, 1000, 530, 300, 0)))
    return card(
        name,
        free_milli,
        model=model,
        memory_mib=memory_mib,
        free_mib=None if memory_mib is None else memory_mib * free_milli // 1000,
        is_healthy=draw(st.integers(0, 9)) > 0,
    )


@st.composite
def nodes(draw: st.DrawFn, name: str) -> NodeState:
    """A node with 0 to 4 devices of one model, classic or for sharing."""
    is_sharing = draw(st.integers(0, 3)) > 0
    model = draw(st.sampled_from(MODELS))
    cards = [draw(devices(str(i), model)) for i in range(draw(st.integers(0, 4)))]
    if not is_sharing:
        cards = [card(str(i), 1000 if one.users == 0 else 0, model=model) for i, one in enumerate(cards)]
    free_count = sum(one.is_untouched for one in cards)
    return seat(
        name,
        devices=cards,
        is_sharing=is_sharing,
        cpu=draw(st.sampled_from((2, 8, 16, 64))),
        gib=draw(st.sampled_from((4, 64))),
        slots=draw(st.sampled_from((1, 3, 110))),
        extended={} if is_sharing or not cards else {"nvidia.com/gpu": free_count},
        labels={"zone": draw(st.sampled_from("ab"))},
        taints=draw(st.sampled_from(((), (), (TAINT,)))),
        is_cordoned=draw(st.integers(0, 9)) == 0,
        blocked=draw(st.sampled_from(((), (), (), ("unreadable record",)))),
    )


@st.composite
def asks(draw: st.DrawFn) -> DeviceAsk | None:
    """What a pod may ask of devices."""
    models = draw(st.sampled_from(((), (), ("G2",), ("T4", "G2"))))
    match draw(st.integers(0, 5)):
        case 0:
            return None
        case 1:
            return chosen(draw(st.sampled_from((1, 1, 2, 4))), models=models)
        case 2:
            return classic(draw(st.sampled_from((1, 1, 2))), models=models)
        case 3:
            return share(0, mib=draw(st.sampled_from((2000, 9000))), models=models)
        case _:
            count = draw(st.sampled_from((1, 1, 1, 2)))
            return share(draw(st.sampled_from(SHARES)), count=count, models=models)


@st.composite
def batches(draw: st.DrawFn, most: int = 8) -> list[Pod]:
    """Pods of a few kinds, some of them alike."""
    found: list[Pod] = []
    for _ in range(draw(st.integers(1, 5))):
        ask = draw(asks())
        kind = {
            "cpu": draw(st.sampled_from((0.0, 0.5, 2, 6))),
            "gib": draw(st.sampled_from((0.0, 1, 8))),
            "constraints": draw(st.sampled_from(CONSTRAINTS)),
            "priority": draw(st.sampled_from((0, 0, 0, 100))),
        }
        is_counted = ask is not None and ask.kind.value == "classic"
        for _ in range(draw(st.integers(1, 3))):
            extended = {"nvidia.com/gpu": ask.count} if ask is not None and is_counted else None
            found.append(pod(f"p{len(found)}", ask=ask, extended=extended, **kind))
    return found[:most]


@st.composite
def clusters(draw: st.DrawFn, most: int = 5) -> list[NodeState]:
    """A few nodes, some of them alike."""
    found: list[NodeState] = []
    for i in range(draw(st.integers(1, most))):
        if found and draw(st.booleans()):
            twin = found[-1]
            found.append(
                seat(
                    f"n{i}",
                    devices=twin.devices,
                    is_sharing=twin.node.is_sharing,
                    cpu=twin.free.milli_cpu / 1000,
                    gib=twin.free.memory_bytes // 2**30,
                    slots=twin.free.pod_slots,
                    extended=dict(twin.free.extended),
                    labels=twin.node.labels,
                    taints=twin.node.taints,
                    is_cordoned=twin.node.is_cordoned,
                    blocked=twin.blocked,
                )
            )
        else:
            found.append(draw(nodes(f"n{i}")))
    return found
