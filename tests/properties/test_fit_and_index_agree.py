"""The index answers with a berth exactly where the definition of feasible finds one, and only with lawful berths."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from binpack import fit
from binpack.check import check
from binpack.index import Index
from binpack.state import NodeState
from fleet.constraints import NodeConstraints, Taint, Toleration
from fleet.device import Alternative, Partition
from fleet.plan import Placement, Plan
from fleet.pod import Pod
from tests.support.builders import a_node, a_pod, a_state

MODELS = ("NVIDIA-H100-80GB", "NVIDIA-A100", "NVIDIA-A30", "")
PROFILES = ("1g.10gb", "1g.10gb+me", "2g.20gb", "3g.40gb", "1g.6gb", "2g.12gb")
LAYOUTS = ((), (), (Partition("2g.20gb", 0), Partition("3g.40gb", 4)))
asks: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"whole": st.integers(1, 3)}),
    st.fixed_dictionaries({"classic": st.integers(1, 3)}),
    st.fixed_dictionaries(
        {"milli": st.sampled_from([0, 100, 500, 1000]), "mib": st.sampled_from([10, 400, 1000, 1001])},
        optional={"count": st.integers(1, 3)},
    ),
    st.fixed_dictionaries({"profile": st.sampled_from(PROFILES)}),
    st.fixed_dictionaries({"whole": st.integers(1, 3), "is_one_island": st.just(True)}),
    st.fixed_dictionaries(
        {
            "ways": st.lists(
                st.builds(Alternative, model=st.sampled_from(["H100", "A100", "B200"]), count=st.integers(1, 3)),
                min_size=1,
                max_size=3,
            ).map(tuple)
        }
    ),
)
pods = st.builds(
    lambda ask, models, cpu, extended, zone, tolerant, is_ordered: a_pod(
        milli_cpu=cpu,
        extended=extended,
        models=models if ask and "ways" not in ask else (),
        is_ordered=is_ordered and len(models) > 1 and "ways" not in ask,
        constraints=NodeConstraints(
            node_selector=(("zone", zone),) if zone else (),
            tolerations=(Toleration(operator="Exists"),) if tolerant else (),
        ),
        **ask,
    ),
    asks,
    st.sampled_from([(), ("H100",), ("A100", "H100"), ("B200",)]),
    st.sampled_from([0, 500, 4000]),
    st.sampled_from([{}, {"example.com/x": 1}]),
    st.sampled_from(["", "a"]),
    st.booleans(),
    st.booleans(),
)


@st.composite
def states(draw: st.DrawFn) -> list[NodeState]:
    found = []
    for name in draw(st.lists(st.sampled_from(["a", "b", "c"]), unique=True, max_size=3)):
        is_sharing = draw(st.booleans())
        node = a_node(
            name,
            gpus=draw(st.integers(0, 3)),
            dead=draw(st.sets(st.sampled_from(["0", "1"]))),
            model=draw(st.sampled_from(MODELS)),
            memory_mib=draw(st.sampled_from([None, 1000])),
            is_sharing=is_sharing,
            milli_cpu=draw(st.sampled_from([1000, 8000])),
            pod_slots=draw(st.sampled_from([2, 110])),
            extended=draw(st.sampled_from([{}, {"example.com/x": 1}])),
            labels=draw(st.sampled_from([{}, {"zone": "a"}])),
            taints=draw(st.sampled_from([(), (Taint(key="k"),)])),
            is_cordoned=draw(st.booleans()),
            device_problems=draw(st.sampled_from([(), (), (), ("doubt",)])),
            mig=draw(st.dictionaries(st.sampled_from(["0", "1"]), st.sampled_from(LAYOUTS))) if is_sharing else {},
            islands=draw(st.sampled_from([(), (("0", "1"), ("2",)), (("0", "2"),)])) if is_sharing else (),
        )
        residents = []
        for i, ask in enumerate(draw(st.lists(asks, max_size=3))):
            wanted = ask.get("whole", ask.get("count", 1)) if is_sharing else 0
            ids = tuple(str(d) for d in draw(st.permutations(range(3)))[:wanted]) if "classic" not in ask else None
            if "profile" in ask and ids:
                ids = (f"{ids[0]}:{ask['profile']}@{draw(st.integers(0, 7))}",)
            residents.append(a_pod(f"r{name}{i}", node=name, devices=ids or None, milli_cpu=300, **ask))
        found.append(a_state(node, *residents))
    return found


@given(states(), st.lists(pods, min_size=1, max_size=3))
@settings(deadline=None, max_examples=200)
def test_the_index_finds_a_berth_exactly_where_there_is_one(found: list[NodeState], wanted: list[Pod]) -> None:
    index = Index(found)
    for pod in wanted:
        feasible = [
            state.node.name
            for state in found
            if fit.mismatch(pod, state.node) is None and fit.devices_for(pod, state) is not None
        ]
        options = index.options(pod, 9)
        assert sorted(option.berth.node for option in options) == sorted(feasible)
        by_name = {state.node.name: state for state in found}
        for option in options:
            assert fit.refusal(pod, option.berth, by_name[option.berth.node]) == ""
            assert check(by_name, [pod], Plan(placements=(option,))) == ()
        assert isinstance(index.place(pod), Placement) is bool(feasible)
