"""What the pools there are ask of the adviser, and its answer as a table. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import msgspec
from rich.markup import escape
from rich.table import Column, Table

from berthmaster.autoscaler_words import number
from berthmaster.warmpool_object import WarmPool
from fleet.draw import read_draw
from fleet.errors import BerthmasterError, DecodeError
from warmpool.advice.sizing import node_share
from warmpool.advice.values import Candidate, Demand, NodeShape, Proposal

_HOUR_S = 3600.0
_WATCHED_S = 1800.0  # of an hour, for its count to stand for the whole of it
_LEAD_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the adviser is asked; `--save` writes it, `--file` reads it.

    Attributes:
        realised: Share of draws that found a warm node, as measured, by pool; a pool is left out where none was.
        notes: What had to be assumed.
    """

    shapes: tuple[NodeShape, ...] = ()
    demands: tuple[Demand, ...] = ()
    realised: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawer:
    """A pod that drew from a pool: the text of its draw, and the devices it takes."""

    draw: str
    devices: int


def asked_of(
    pools: Sequence[WarmPool], hours: Mapping[str, Mapping[int, Sequence[float]]], drawers: Iterable[Drawer]
) -> Asked:
    """Return what today's pools ask.

    Args:
        pools: All of them.
        hours: By pool, what it remembers of each hour since the epoch: draws, misses, idle and watched seconds.
        drawers: Pods that are there.
    """
    shapes: dict[str, NodeShape] = {}
    demands, notes = [], []
    devices = _devices(drawers)
    last = max((hour for rows in hours.values() for hour in rows), default=0)
    first = min((hour for rows in hours.values() for hour in rows), default=0)
    for pool in pools:
        shape = _shape(pool)
        known = shapes.get(shape.name)
        shapes[shape.name] = shape if known is None else _both(known, shape)
        goal = pool.field("objective.hitRate")
        taken = devices.get(pool.name, 0)
        if not taken:
            notes.append(f"{pool.name}: no pod of it is there, so a draw is taken to need a whole node")
        demands.append(
            Demand(
                name=pool.name,
                shape=shape.name,
                devices=min(taken, shape.devices),
                model=shape.model,
                images=_images(pool),
                goal_ratio=float(goal) if isinstance(goal, int | float) and 0 < goal < 1 else 0.99,
                hourly=_hourly(hours.get(pool.name, {}), first, last),
            )
        )
    if shapes and not any(shape.hour_cost for shape in shapes.values()):
        notes.append("no pool tells what an idle hour costs: each device is counted as 1")
        shapes = {name: replace(shape, hour_cost=float(max(1, shape.devices))) for name, shape in shapes.items()}
    return Asked(
        shapes=tuple(shapes[name] for name in sorted(shapes)),
        demands=tuple(demands),
        realised={
            pool.name: pool.status.hit_rate.realised
            for pool in pools
            if pool.status.hit_rate is not None and pool.status.hit_rate.realised is not None
        },
        notes=tuple(notes),
    )


def asked_from(raw: bytes) -> Asked:
    """Return what was saved.

    Raises:
        DecodeError: It is nothing of that kind, or contradicts itself.
    """
    try:
        asked = msgspec.json.decode(raw, type=Asked)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DecodeError(f"the file holds no demands and shapes: {error}") from error
    problems = _problems(asked)
    if problems:
        raise DecodeError(f"the file cannot be used: {'; '.join(problems)}")
    return asked


def with_shapes(asked: Asked, texts: Sequence[str]) -> Asked:
    """Return the question with more shapes that can be bought.

    Args:
        asked: The question.
        texts: Each `NAME=DEVICES:MODEL:COST[:LEAD_SECONDS]`.

    Raises:
        BerthmasterError: One is not written so.
    """
    shapes = {shape.name: shape for shape in asked.shapes}
    for text in texts:
        name, equals, rest = text.partition("=")
        parts = rest.split(":")
        try:
            if not (equals and name and 3 <= len(parts) <= 4):
                raise ValueError
            shape = NodeShape(
                name=name,
                devices=int(parts[0]),
                model=parts[1],
                hour_cost=float(parts[2]),
                lead_s=float(parts[3]) if len(parts) == 4 else _LEAD_S,
            )
        except ValueError:
            raise BerthmasterError(f"--shape {text!r}: write NAME=DEVICES:MODEL:COST[:LEAD_SECONDS]") from None
        shapes[name] = shape
    found = replace(asked, shapes=tuple(shapes[name] for name in sorted(shapes)))
    problems = _problems(found)
    if problems:
        raise BerthmasterError("; ".join(problems))
    return found


def document(asked: Asked, proposal: Proposal) -> dict[str, Any]:
    """Return both as JSON."""
    return {
        "today": [asdict(pool) | {"realised_hit_ratio": asked.realised.get(pool.serves[0])} for pool in proposal.today],
        "proposed": [asdict(pool) for pool in proposal.pools],
        "saved_ratio": round(proposal.saved_ratio, 4),
        "is_optimal": proposal.is_optimal,
        "candidates": proposal.candidates,
        "notes": [*asked.notes, *proposal.notes],
    }


def tables(asked: Asked, proposal: Proposal) -> tuple[Table, Table]:
    """Return today's pools and the proposed ones."""
    rates = {demand.name: demand.per_hour for demand in asked.demands}
    before = _table("today", "hits, seen")
    for pool in proposal.today:
        realised = asked.realised.get(pool.serves[0])
        before.add_row(*_cells(pool, rates), "-" if realised is None else f"{realised:.1%}")
    after = _table("proposed", "")
    for pool in proposal.pools:
        after.add_row(*_cells(pool, rates), "")
    return before, after


def verdict(proposal: Proposal) -> str:
    """Return the sum of it in one line."""
    before, after = (sum(pool.cost.hour_cost for pool in pools) for pools in (proposal.today, proposal.pools))
    how = "the best" if proposal.is_optimal else "the best that was found in time"
    if proposal.saved_ratio < 0.005:
        return f"today's pools stand: no other grouping idles for less ({how} of {proposal.candidates} pools weighed)"
    return (
        f"{len(proposal.pools)} pools instead of {len(proposal.today)} would idle for {number(after)} an hour instead "
        f"of {number(before)}: {proposal.saved_ratio:.0%} less at the same goals "
        f"({how} of {proposal.candidates} pools weighed)"
    )


def _table(title: str, last: str) -> Table:
    words = ("draws/h", "warm nodes", "at most", "idle", "cost/h", "hits, expected", last)
    return Table(
        Column(title, overflow="fold"),
        "shape",
        Column("images", justify="right"),
        *(Column(word, justify="right") for word in words),
        box=None,
        header_style="bold",
    )


def _cells(pool: Candidate, rates: Mapping[str, float]) -> tuple[str, ...]:
    return (
        escape(" + ".join(pool.serves)),
        escape(pool.shape.name),
        str(len(pool.images)),
        number(sum(rates.get(name, 0.0) for name in pool.serves)),
        f"{pool.cost.size:.1f}",
        str(pool.cost.peak_size),
        f"{pool.cost.idle_nodes:.1f}",
        number(pool.cost.hour_cost),
        f"{pool.cost.hit_ratio:.1%}",
    )


def _shape(pool: WarmPool) -> NodeShape:
    instance, model = pool.field("shape.instanceType"), pool.field("shape.devices.model")
    count, cost = pool.field("shape.devices.count"), pool.field("objective.idleCost")
    if not isinstance(cost, int | float):
        cost = pool.field("idleHourCost")
    devices = count if isinstance(count, int) and count > 0 else 0
    name = instance if isinstance(instance, str) and instance else f"{devices} x {model or 'device'}"
    lead = pool.status.lead_time.mean_seconds if pool.status.lead_time is not None else None
    return NodeShape(
        name=name,
        devices=devices,
        model=model if isinstance(model, str) else "",
        hour_cost=float(cost) if isinstance(cost, int | float) and cost > 0 else 0.0,
        lead_s=lead if lead is not None and lead > 0 else _LEAD_S,
    )


def _both(one: NodeShape, other: NodeShape) -> NodeShape:
    """Return what two pools tell of one shape: the larger of what they measured and pay."""
    return replace(
        one,
        hour_cost=max(one.hour_cost, other.hour_cost),
        lead_s=max(one.lead_s, other.lead_s),
        model=one.model or other.model,
    )


def _images(pool: WarmPool) -> tuple[str, ...]:
    images = pool.field("images")
    found = [image.get("reference") for image in images if isinstance(image, dict)] if isinstance(images, list) else []
    return tuple(sorted(name for name in found if isinstance(name, str)))


def _devices(drawers: Iterable[Drawer]) -> dict[str, int]:
    """Return by pool how many devices most of its pods take."""
    counts: dict[str, Counter[int]] = {}
    for drawer in drawers:
        draw = read_draw(drawer.draw)
        if draw is not None and drawer.devices > 0:
            counts.setdefault(draw.pool, Counter())[drawer.devices] += 1
    return {pool: max(found, key=lambda devices: (found[devices], devices)) for pool, found in counts.items()}


def _hourly(rows: Mapping[int, Sequence[float]], first: int, last: int) -> tuple[float | None, ...]:
    found: list[float | None] = []
    for hour in range(first, last + 1) if rows else ():
        row = rows.get(hour)
        watched_s = row[3] if row is not None else 0.0
        found.append(row[0] * _HOUR_S / watched_s if row is not None and watched_s >= _WATCHED_S else None)
    return tuple(found)


def _problems(asked: Asked) -> list[str]:
    shapes = {shape.name: shape for shape in asked.shapes}
    names = [demand.name for demand in asked.demands]
    found = [f"{name} stands there twice" for name, count in Counter(names).items() if count > 1]
    if len(shapes) < len(asked.shapes):
        found.append("a shape stands there twice")
    found += [
        f"shape {shape.name}: devices, cost or lead time cannot be"
        for shape in asked.shapes
        if shape.devices < 0 or not 0 <= shape.hour_cost < 1e12 or not 0 < shape.lead_s < 1e7
    ]
    for demand in asked.demands:
        home = shapes.get(demand.shape)
        if home is None:
            found.append(f"{demand.name}: there is no shape {demand.shape}")
        elif node_share(demand, home) <= 0:
            found.append(f"{demand.name}: a replica of {demand.devices} devices does not fit on shape {home.name}")
        if not 0 < demand.goal_ratio < 1:
            found.append(f"{demand.name}: the goal must lie between 0 and 1, got {demand.goal_ratio:g}")
        if any(count is not None and not 0 <= count < 1e6 for count in demand.hourly):
            found.append(f"{demand.name}: draws in an hour must lie between 0 and 1000000")
    return found
