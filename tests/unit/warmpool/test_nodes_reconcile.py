"""The pool as a whole: what to order, what to give up, what to take back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.warm_world import EXACT, a_pool
from warmpool.nodes.limits import Limits, StepTimes, limits_of
from warmpool.nodes.reconcile import Close, PlanReason, PoolPlan, carried, reconcile
from warmpool.nodes.rotation import due
from warmpool.providers.breaker import Breakers
from warmpool.providers.provider import Capabilities
from warmpool.values import NodeState, Offer, PoolNode, PoolSpec, Shape, Why

LIMITS = Limits(replace_s=100.0)


def a_node(name: str, state: NodeState = NodeState.WARM, **changes: object) -> PoolNode:
    node = replace(PoolNode.found(name, 0.0), state=state, node_since_s=0.0)
    return replace(node, **changes)  # type: ignore[arg-type]


def plan_of(
    nodes: list[PoolNode],
    target: int,
    *,
    pool: PoolSpec | None = None,
    now_s: float = 0.0,
    breakers: Breakers | None = None,
    capabilities: Capabilities = EXACT,
    is_retiring: bool = False,
) -> PoolPlan:
    return reconcile(
        pool or a_pool(),
        nodes,
        target,
        now_s,
        breakers=breakers or Breakers(),
        limits=LIMITS,
        capabilities=capabilities,
        is_retiring=is_retiring,
    )


def ordered(plan: PoolPlan) -> int:
    return sum(count for _, count in plan.orders)


def closed(plan: PoolPlan) -> list[str]:
    return [close.name for close in plan.closes]


def test_position_counts_warm_and_coming_and_nothing_else() -> None:
    nodes = [
        a_node("a"),
        a_node("b", NodeState.ORDERED),
        a_node("c", NodeState.IMAGES),
        a_node("d", NodeState.CLAIMED),
        a_node("e", NodeState.SERVING),
        a_node("f", NodeState.RELEASING),
        a_node("g", NodeState.FAILED),
        a_node("h", is_cordoned=True),
    ]
    plan = plan_of(nodes, 5)
    assert (plan.position, plan.warm, plan.total) == (3, 1, 8)
    assert ordered(plan) == 2
    assert plan.reason is PlanReason.SHORT


@pytest.mark.parametrize(("target", "wanted"), [(-5, 1), (0, 1), (2, 2), (99, 4)])
def test_the_target_stays_within_the_persons_bounds(target: int, wanted: int) -> None:
    assert plan_of([], target, pool=a_pool(min_nodes=1, max_nodes=4)).target == wanted


def test_no_more_nodes_than_the_maximum_whatever_they_do() -> None:
    nodes = [a_node(name, NodeState.SERVING) for name in "abc"]
    plan = plan_of(nodes, 4, pool=a_pool(max_nodes=5))
    assert ordered(plan) == 2
    assert plan.short == 2
    assert plan.reason is PlanReason.AT_MAXIMUM


def test_what_is_furthest_from_warm_and_youngest_goes_first() -> None:
    nodes = [
        a_node("old", born_at_s=-100.0),
        a_node("young", born_at_s=-1.0),
        a_node("o1", NodeState.ORDERED, ordered_at_s=1.0),
        a_node("o2", NodeState.ORDERED, ordered_at_s=2.0),
        a_node("i", NodeState.IMAGES),
    ]
    assert closed(plan_of(nodes, 3)) == ["o2", "o1"]
    assert closed(plan_of(nodes, 1)) == ["o2", "o1", "i", "old"]


def test_surplus_is_taken_back_before_anything_is_ordered() -> None:
    nodes = [
        a_node("a", NodeState.RELEASING, close_why=Why.SURPLUS, warm_at_s=1.0),
        a_node("b", NodeState.RELEASING, close_why=Why.SURPLUS, release_told_s=5.0),
        a_node("c", NodeState.RELEASING, close_why=Why.WARM_TIMEOUT),
    ]
    plan = plan_of(nodes, 2)
    assert plan.reopens == ("a",)
    assert ordered(plan) == 1
    back = {node.name: node for node in carried(nodes, plan)}
    assert back["a"].close_why is None
    assert back["b"].close_why is Why.SURPLUS


def test_an_offer_that_was_refused_spills_over_and_then_runs_dry() -> None:
    a, b = Offer(zone="a"), Offer(zone="b")
    pool = a_pool(shape=Shape(devices=1, offers=(a, b)))
    breakers = Breakers().failed(pool.shape, a, 0.0, 0.0, Why.INSUFFICIENT_CAPACITY, "")
    plan = plan_of([], 3, pool=pool, breakers=breakers, now_s=1.0)
    assert plan.orders == ((b, 3),)
    assert plan.is_capacity_available
    breakers = breakers.failed(pool.shape, b, 1.0, 1.0, Why.INSUFFICIENT_CAPACITY, "")
    plan = plan_of([], 3, pool=pool, breakers=breakers, now_s=2.0)
    assert (plan.orders, plan.short, plan.reason) == ((), 3, PlanReason.NO_CAPACITY)
    assert not plan.is_capacity_available


def test_a_node_that_somebody_cordoned_stays_while_the_pool_is_short() -> None:
    cordoned = a_node("c", is_cordoned=True)
    assert plan_of([cordoned], 1).closes == ()
    assert plan_of([cordoned, a_node("w")], 1).closes == (Close(name="c", why=Why.USELESS),)


def test_a_counted_provider_is_told_a_number_and_no_node_is_picked() -> None:
    counted = Capabilities(can_order=False, is_counted=True)
    plan = plan_of([a_node("a"), a_node("b"), a_node("c", NodeState.CLAIMED)], 1, capabilities=counted)
    assert (plan.resize, plan.closes, plan.orders) == (2, (), ()), "a claimed one still looks free to it"


def test_nodes_that_others_make_are_waited_for() -> None:
    plan = plan_of([], 2, capabilities=Capabilities(can_order=False))
    assert (plan.short, plan.reason, plan.resize) == (2, PlanReason.NOT_OURS_TO_ORDER, None)


def test_a_pool_that_is_deleted_gives_up_what_nobody_uses() -> None:
    nodes = [a_node("a"), a_node("b", NodeState.ORDERED), a_node("c", NodeState.SERVING), a_node("d", is_cordoned=True)]
    plan = plan_of(nodes, 5, is_retiring=True, pool=a_pool(min_nodes=2))
    assert sorted(closed(plan)) == ["a", "b", "d"]
    assert {close.why for close in plan.closes} == {Why.POOL_GONE}
    assert plan.orders == ()


def test_only_one_serving_node_is_emptied_at_a_time_and_only_beyond_the_target() -> None:
    spare = [
        a_node("s1", NodeState.SERVING, is_spare=True, pods=("u1", "u2")),
        a_node("s2", NodeState.SERVING, is_spare=True, pods=("u3",)),
        a_node("s3", NodeState.SERVING, pods=("u4",)),
    ]
    assert plan_of([*spare, a_node("w")], 1).closes == (Close(name="s2", why=Why.SPARE),)
    assert plan_of(spare, 1).closes == ()
    leaving = a_node("s0", NodeState.RELEASING, close_why=Why.SPARE)
    assert plan_of([*spare, a_node("w"), leaving], 1).closes == ()


def test_of_many_serving_nodes_one_in_ten_is_emptied_at_a_time() -> None:
    spare = [a_node(f"s{i:02}", NodeState.SERVING, is_spare=True, pods=(f"u{i}",)) for i in range(30)]
    plan = plan_of([*spare, a_node("w")], 1)
    assert [close.name for close in plan.closes] == ["s00", "s01", "s02"]


def test_rotation_orders_first_and_releases_when_the_replacement_is_warm() -> None:
    pool = a_pool(expire_after_s=1000.0)
    nodes = [a_node("a", expires_at_s=1000.0), a_node("b", expires_at_s=5000.0)]
    assert plan_of(nodes, 2, pool=pool, now_s=899.0).orders == ()
    plan = plan_of(nodes, 2, pool=pool, now_s=900.0)
    assert (ordered(plan), plan.surge, plan.closes, plan.reason) == (1, 1, (), PlanReason.ROTATING)
    nodes.append(a_node("c", NodeState.IMAGES))
    plan = plan_of(nodes, 2, pool=pool, now_s=920.0)
    assert (ordered(plan), plan.closes) == (0, ())
    nodes[-1] = a_node("c", expires_at_s=1900.0)
    plan = plan_of(nodes, 2, pool=pool, now_s=940.0)
    assert plan.closes == (Close(name="a", why=Why.EXPIRING),)
    nodes[0] = replace(nodes[0], state=NodeState.RELEASING, close_why=Why.EXPIRING)
    nodes[1] = replace(nodes[1], expires_at_s=1000.0)
    plan = plan_of(nodes, 2, pool=pool, now_s=941.0)
    assert (ordered(plan), plan.surge) == (0, 0), "the next one when this one is gone"


def test_rotation_may_go_one_beyond_the_maximum() -> None:
    pool = a_pool(expire_after_s=1000.0, max_nodes=1)
    assert ordered(plan_of([a_node("a", expires_at_s=1000.0)], 1, pool=pool, now_s=950.0)) == 1


def test_a_node_of_another_shape_is_replaced_like_an_old_one() -> None:
    nodes = [a_node("a", shape="another"), a_node("b", shape=a_pool().shape.fingerprint), a_node("c")]
    plan = plan_of(nodes, 3)
    assert (plan.surge, ordered(plan)) == (1, 1)
    plan = plan_of([*nodes, a_node("d")], 3)
    assert plan.closes == (Close(name="a", why=Why.DRIFTED),)


def test_nobody_rotates_where_the_node_cannot_be_chosen() -> None:
    nodes = [a_node("a", expires_at_s=10.0)]
    plan = plan_of(nodes, 1, now_s=9.0, capabilities=Capabilities(can_order=True))
    assert (plan.surge, plan.closes) == (0, ())


def test_nodes_that_expire_together_begin_early_enough_for_all() -> None:
    pool = a_pool(expire_after_s=1000.0)
    same = [a_node(name, expires_at_s=1000.0) for name in "abc"]
    assert due(pool, same, 699.0, LIMITS) == ()
    assert [node.name for node in due(pool, same, 700.0, LIMITS)] == ["a"]
    two = replace(pool, surge_nodes=2)
    assert due(two, same, 799.0, LIMITS) == ()
    assert [node.name for node in due(two, same, 800.0, LIMITS)] == ["a", "b"]


def test_time_outs_are_learnt_above_a_floor_and_below_a_ceiling() -> None:
    pool = a_pool()
    new = limits_of(pool, StepTimes())
    assert new.warm_timeout_s == 3600.0
    assert new.step_s(NodeState.ORDERED) == 300.0
    times = StepTimes()
    for _ in range(10):
        times = times.step(NodeState.ORDERED, 400.0).step(NodeState.LAUNCHED, 1.0).lead(2000.0)
    learnt = limits_of(pool, times)
    assert learnt.step_s(NodeState.ORDERED) == 1200.0
    assert learnt.step_s(NodeState.LAUNCHED) == 300.0, "the floor"
    assert learnt.warm_timeout_s == 6000.0
    assert learnt.replace_s == 3000.0
    for _ in range(100):
        times = times.lead(1e6)
    assert limits_of(pool, times).warm_timeout_s == 6 * 3600.0
    assert len(times.leads_s) == 64


def test_what_was_given_up_lengthens_the_next_time_out() -> None:
    times = StepTimes().step(NodeState.ORDERED, 301.0)
    assert limits_of(a_pool(), times).step_s(NodeState.ORDERED) == 903.0


def test_a_persons_own_time_out_stands_alone() -> None:
    limits = limits_of(a_pool(warm_timeout_s=1200.0), StepTimes())
    assert limits.warm_timeout_s == 1200.0
    assert limits.step_s(NodeState.ORDERED) == float("inf")


def test_a_longer_silence_between_refusals_up_to_a_quarter_of_an_hour() -> None:
    shape, offer = Shape(), Offer()
    breakers, now_s, gaps = Breakers(), 0.0, []
    for _ in range(9):
        breakers = breakers.failed(shape, offer, now_s, now_s, Why.INSUFFICIENT_CAPACITY, "none left")
        breaker = breakers.of(shape, offer)
        assert breaker is not None
        gaps.append(breaker.retry_at_s - now_s)
        assert breakers.allowance(shape, offer, breaker.retry_at_s - 0.1) == 0
        assert breakers.allowance(shape, offer, breaker.retry_at_s) == 1
        now_s = breaker.retry_at_s
        breakers = breakers.ordered(shape, offer, now_s)
        assert breakers.allowance(shape, offer, now_s + 1.0) == 0, "one probe at a time"
    assert gaps == [30.0, 60.0, 120.0, 240.0, 480.0, 900.0, 900.0, 900.0, 900.0]
    assert breakers.launched(shape, offer, now_s).tripped == {}


def test_orders_under_way_together_are_one_refusal() -> None:
    shape, offer = Shape(), Offer()
    breakers = Breakers().failed(shape, offer, 0.0, 10.0, Why.INSUFFICIENT_CAPACITY, "")
    assert breakers.failed(shape, offer, 0.0, 11.0, Why.INSUFFICIENT_CAPACITY, "") is breakers
    assert breakers.launched(shape, offer, 5.0) is breakers, "ordered before the refusal: proves nothing now"


def test_a_probe_of_which_nothing_is_heard_does_not_close_the_offer_for_ever() -> None:
    shape, offer = Shape(), Offer()
    breakers = Breakers().failed(shape, offer, 0.0, 0.0, Why.REFUSED, "").ordered(shape, offer, 30.0)
    assert breakers.allowance(shape, offer, 929.0) == 0
    assert breakers.allowance(shape, offer, 930.0) == 1


def test_a_success_of_one_offer_says_nothing_of_another() -> None:
    shape, a, b = Shape(), Offer(zone="a"), Offer(zone="b")
    breakers = Breakers().failed(shape, a, 0.0, 0.0, Why.REFUSED, "").ordered(shape, b, 1.0).launched(shape, b, 1.0)
    assert breakers.of(shape, a) is not None
    assert breakers.of(Shape(devices=2), a) is None
