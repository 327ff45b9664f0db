"""The conditions of a pool: is it valid, does its provider answer, is there capacity, do agents come. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.condition import LONGEST_TEXT, Condition
from warmpool.controller.agents import Agent
from warmpool.controller.book import Book
from warmpool.controller.world import Pool
from warmpool.nodes.reconcile import PlanReason
from warmpool.values import Mode

READY, VALID, PROVIDER = "Ready", "Valid", "ProviderReady"
CAPACITY, AGENTS, PULLING, INFORMED = "CapacityAvailable", "AgentsTolerate", "ImagesPullable", "HistorySuffices"
_MOST_NAMED = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What a status is made from.

    Attributes:
        book: None = never looked at.
        puller_problem: Why no pod can pull; "" = one can, or was not needed yet.
        strangers: DaemonSets that would stay away from the pool's nodes.
        lacks_fetcher: It names models, and this controller has no image that fetches them.
        starts: How long starts of its draws took, in one line; "" = none was seen.
    """

    pool: Pool
    book: Book | None
    puller_problem: str = ""
    strangers: tuple[Agent, ...] = ()
    lacks_fetcher: bool = False
    starts: str = ""


def conditions_of(picture: Picture) -> tuple[Condition, ...]:
    """Return the conditions: Ready sums the others up."""
    rest = (
        _valid(picture.pool),
        _provider(picture),
        _capacity(picture.book),
        _agents(picture),
        _pulling(picture),
        _informed(picture.book),
    )
    # Too little history is no fault, and capacity comes and goes: both are told, and the pool does what it can.
    broken = next((one for one in rest if one.holds is False and one.kind not in (INFORMED,)), None)
    return (_ready(picture, broken), *rest)


def _ready(picture: Picture, broken: Condition | None) -> Condition:
    spec = picture.pool.spec
    if broken is not None:
        return Condition(kind=READY, holds=False, reason=broken.reason, text=broken.text)
    if picture.book is None or spec is None:
        return Condition(kind=READY, holds=None, reason="NotLookedAtYet", text="not looked at yet")
    if picture.pool.is_deleting:
        text = "being deleted: nodes that nobody uses are given back, the pool goes with the last one"
        return Condition(kind=READY, holds=False, reason="Retiring", text=text)
    if spec.pool.mode is Mode.OBSERVE:
        text = "decisions are told and not carried out (mode: observe)"
        return Condition(kind=READY, holds=True, reason="Observing", text=text)
    return Condition(kind=READY, holds=True, reason="Acting", text="decisions are carried out")


def _valid(pool: Pool) -> Condition:
    if not pool.problems:
        return Condition(kind=VALID, holds=True, reason="Valid", text="the spec is in force")
    what = "the last valid one stays in force" if pool.spec else "nothing is done"
    text = f"{'; '.join(pool.problems)}: {what}"
    return Condition(kind=VALID, holds=False, reason="InvalidSpec", text=text[:LONGEST_TEXT])


def _provider(picture: Picture) -> Condition:
    book = picture.book
    if book is None:
        return Condition(kind=PROVIDER, holds=None, reason="NotAskedYet", text="not asked yet")
    if book.problem:
        return Condition(kind=PROVIDER, holds=False, reason="ProviderFailed", text=book.problem[:LONGEST_TEXT])
    return Condition(kind=PROVIDER, holds=True, reason="Answers", text="the provider answers")


def _capacity(book: Book | None) -> Condition:
    plan = book.plan if book is not None else None
    if plan is None:
        return Condition(kind=CAPACITY, holds=None, reason="NotAskedYet", text="nothing was ordered yet")
    if not plan.is_capacity_available:
        text = f"every offer was refused lately; {plan.short} nodes short"
        return Condition(kind=CAPACITY, holds=False, reason="InsufficientCapacity", text=text)
    if plan.reason is PlanReason.AT_MAXIMUM:
        text = f"size.max reached with {plan.total} nodes; {plan.short} short of the {plan.target} wanted"
        return Condition(kind=CAPACITY, holds=True, reason="AtMaximum", text=text)
    return Condition(kind=CAPACITY, holds=True, reason="NotRefused", text="no order was refused lately")


def _agents(picture: Picture) -> Condition:
    strangers = picture.strangers
    if not strangers:
        text = "every DaemonSet that wants the pool's nodes tolerates its taints"
        return Condition(kind=AGENTS, holds=True, reason="AllTolerate", text=text)
    named = ", ".join(str(agent) for agent in strangers[:_MOST_NAMED])
    more = f" and {len(strangers) - _MOST_NAMED} more" if len(strangers) > _MOST_NAMED else ""
    text = (
        f"DaemonSets that do not tolerate the pool's taints and so stay away from its nodes: {named}{more}; "
        "give them the tolerations that docs/install.md names"
    )
    return Condition(kind=AGENTS, holds=False, reason="AgentsStayAway", text=text[:LONGEST_TEXT])


def _pulling(picture: Picture) -> Condition:
    if picture.lacks_fetcher:
        text = "models are named, and the controller has no image to fetch them with (setting fetch_image)"
        return Condition(kind=PULLING, holds=False, reason="NoFetchImage", text=text)
    if picture.puller_problem:
        return Condition(kind=PULLING, holds=False, reason="PodsRefused", text=picture.puller_problem[:LONGEST_TEXT])
    return Condition(kind=PULLING, holds=True, reason="NotRefused", text="no pod that pulls was refused")


def _informed(book: Book | None) -> Condition:
    if book is None or book.size is None:
        return Condition(kind=INFORMED, holds=None, reason="NothingSeenYet", text="nothing was seen yet")
    if not book.size.is_informed:
        text = f"too little was seen for the goal to be kept: {book.size.text}"
        return Condition(kind=INFORMED, holds=False, reason="TooLittleHistory", text=text[:LONGEST_TEXT])
    return Condition(kind=INFORMED, holds=True, reason="Enough", text="enough was seen")
