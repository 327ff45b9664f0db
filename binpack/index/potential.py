"""Phi, the class-value potential of a node's free capacity, for any number of nodes at once.

Lower is better; the unit is milli-GPU. For a node with free milli-CPU c, residuals r_d, R = sum r_d::

    Phi = - lD sum_d V(r_d)                                    D: what its devices are worth
          + lX sum_m a_m ((1-w) max(0, V - c G_m/c_m)          X: GPU value that the free CPU cannot feed
                          + w max(0, V - c q))
          + lS sum_m a_m (R - G_m fit_m)                       S: what is left over when it is filled with m alone
          + lF sum_m b_m waste_m                               F: fragment, small pods weighing most

    V       = sum_d V(r_d)
    q       = sum_m a_m / sum_m a_m c_m/G_m
    w       = max(0, 1 - 1000/V)
    fit_m   = min(floor(c/c_m), sum_d floor(r_d/g_m))
    waste_m = R if m does not fit, else the sum of all r_d < g_m

over the typical single-GPU shapes m with weights a_m ~ pods x g_m and b_m ~ pods x (max(g_m, 100)/1000)^-3, each
summing to 1. X and S leave out shapes whose models exclude the node; F counts R for them. A shape that asks no CPU
counts as one that asks 1 milli-CPU.

In X the next pod may want any GPU per CPU that the mix knows, but the V/1000 pods that would fill the node together
want about q, as the whole mix does; w is how much of the spread is gone when so many are averaged. Where the mix wants
all CPU of the cluster, w is 0 (`scarcity`).

Every weight and value is a multiple of a power of two small enough that float64 adds and multiplies them without
rounding. So Phi does not depend on the order of summation, on the number of rows scored at once or on how the state
came about, and equal states tie exactly. The one quotient, w, is rounded to such a multiple.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from binpack.index.columns import Floats, Ints, between
from binpack.index.mix import Mix, Shape
from binpack.index.models import model_place
from fleet.device import WHOLE_MILLI

_MOST_MILLI_CPU: Final = 2**20  # more CPU than this on one node counts as this
_SMALLEST_MILLI: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The parameters of the policy; one set for every trace.

    Attributes:
        device_value: lD; stranded_cpu: lX; left_over: lS; fragment: lF; small_exponent: that of b_m.
        averaged: What w is multiplied by; 0 where the mix wants all CPU of the cluster before all GPUs.
        left_over_scarce: lS where the mix wants all CPU of the cluster before all GPUs.
        idle_node_milli: What a node is worth of whose devices none is in use; 0 where CPU is scarce.
        contention: Price of one milli-GPU of a model that constrained demand would fill exactly.
        reservation_factor: Openings of several devices kept for each that the mix will want of what is still free.
        reservation_margin: Further openings kept, in standard deviations of that number.
        reserved_milli: What taking a kept opening costs.
        lesser_model_milli: What each step down a pod's order of preference costs, per device.
    """

    device_value: float = 1.0
    stranded_cpu: float = 0.25
    averaged: float = 1.0
    left_over: float = 0.03
    left_over_scarce: float = 0.06
    fragment: float = 0.1
    small_exponent: float = -3.0
    idle_node_milli: float = 1.0
    contention: float = 0.15
    reservation_factor: float = 1.5
    reservation_margin: float = 0.5
    reserved_milli: float = 3000.0
    lesser_model_milli: float = 200.0


def grained(value: float) -> float:
    """Return the nearest multiple of 2**-22."""
    return round(value * 2**22) / 2**22


class Potential:
    """Phi for one mix over one list of models.

    A node's *summary* is a row of sums over its devices, (2 + 2 sizes,): R, sum V, and per size sum floor(r/g) and the
    sum of r < g. A booking changes it by differences of `self.of_residual` rows, which is all that scoring needs.
    """

    def __init__(self, mix: Mix, models: Sequence[str], values: Floats, weights: Weights) -> None:
        """Make the tables; `values` is V over 0..1000."""
        shapes = [
            (shape, n)
            for shape, n in mix.typical()
            if shape.count == 1 and 0 < shape.milli_gpu <= WHOLE_MILLI and n > 0
        ]
        self.weights = weights
        self.sizes = sorted({shape.milli_gpu for shape, _ in shapes})
        self.group = _groups([shape for shape, _ in shapes], models)
        allowed = _allowed([shape for shape, _ in shapes], models)[np.unique(self.group, return_index=True)[1]]
        self.of_residual = self._summaries(values)
        milli = np.array([shape.milli_gpu for shape, _ in shapes], np.float64)
        pods = np.array([n for _, n in shapes], np.float64)
        self._milli_cpu = np.array([max(1, shape.milli_cpu) for shape, _ in shapes], np.float64)
        by_demand = _shares(pods * milli)
        by_smallness = _shares(pods * (np.maximum(milli, _SMALLEST_MILLI) / WHOLE_MILLI) ** weights.small_exponent)
        self._size_of = np.searchsorted(np.array(self.sizes), milli)
        self._prepare_stranded(by_demand * weights.stranded_cpu, milli, allowed)
        self._prepare_left_over(by_demand * weights.left_over, milli, allowed)
        self._prepare_fragment(by_smallness * weights.fragment, allowed)

    def summaries(self, residual: Ints) -> Floats:
        """Return the summaries, (n, 2 + 2 sizes), of nodes with these residuals, (n, D) in 0..1000."""
        found: Floats = self.of_residual[residual].sum(axis=1)
        return found

    def phi(self, node_model: Ints, milli_cpu: Ints, summary: Floats) -> Floats:
        """Return Phi, (n,), for nodes of these models with this free CPU and these summaries."""
        group = self.group[node_model]
        cpu = between(milli_cpu, 0, _MOST_MILLI_CPU).astype(np.float64)
        total, value = summary[:, 0], summary[:, 1]
        found = -self.weights.device_value * value
        if not self.sizes:
            return found
        many = len(self.sizes)
        fits, waste = summary[:, 2 : 2 + many], summary[:, 2 + many :]
        found += self._stranded(group, cpu, value)
        found += self._left_over(group, cpu, total, fits)
        found += self._fragment(group, cpu, total, waste)
        return found

    def _summaries(self, values: Floats) -> Floats:
        residual = np.arange(WHOLE_MILLI + 1)
        columns = [residual, values]
        columns += [residual // size for size in self.sizes]
        columns += [np.where(residual < size, residual, 0) for size in self.sizes]
        return np.stack(columns, axis=1).astype(np.float64)

    def _prepare_stranded(self, weight: Floats, milli: Floats, allowed: Floats) -> None:
        """X as prefix sums: the shapes whose appetite G_m/c_m lies below V/c add a_m V - a_m G_m/c_m c."""
        appetite = milli / self._milli_cpu
        order = np.argsort(appetite, kind="stable")
        self._appetite = appetite[order]
        self._value_weight = _prefix(_grained((weight * allowed)[:, order]))
        self._cpu_weight = _prefix(_grained((weight * appetite * allowed)[:, order]))
        self._mean_value_weight = self._value_weight[:, -1]
        cpu_per_milli = (weight / appetite * allowed).sum(axis=1)
        self._mean_cpu_weight = _grained(
            np.divide(self._mean_value_weight**2, cpu_per_milli, out=np.zeros(len(allowed)), where=cpu_per_milli > 0)
        )

    def _stranded(self, group: Ints, cpu: Floats, value: Floats) -> Floats:
        below = np.searchsorted(self._appetite, value / np.maximum(cpu, 1e-9))
        found: Floats = value * self._value_weight[group, below] - cpu * self._cpu_weight[group, below]
        if not self.weights.averaged:
            return found
        mean = np.maximum(0.0, value * self._mean_value_weight[group] - cpu * self._mean_cpu_weight[group])
        many = self.weights.averaged * (1.0 - WHOLE_MILLI / np.maximum(value, WHOLE_MILLI))
        return _grained(found + many * (mean - found))

    def _prepare_left_over(self, weight: Floats, milli: Floats, allowed: Floats) -> None:
        self._left_over_weight = _grained(weight * allowed) * milli
        self._left_over_total = _grained(weight * allowed).sum(axis=1)

    def _left_over(self, group: Ints, cpu: Floats, total: Floats, fits: Floats) -> Floats:
        fit = np.minimum(np.floor(cpu[:, None] / self._milli_cpu), fits[:, self._size_of])
        if len(self._left_over_weight) == 1:
            filled = fit @ self._left_over_weight[0]
        else:
            filled = np.einsum("nm,nm->n", fit, self._left_over_weight[group])
        found: Floats = total * self._left_over_total[group] - filled
        return found

    def _prepare_fragment(self, weight: Floats, allowed: Floats) -> None:
        """F by how many of the distinct CPU requests the free CPU covers."""
        weights = _grained(weight * allowed)
        self._cuts = np.unique(self._milli_cpu)
        covered = self._milli_cpu[None, :] <= np.concatenate(([-1.0], self._cuts))[:, None]
        by_size = np.zeros((len(weights), len(covered), len(self.sizes)))
        for column, size in enumerate(self._size_of):
            by_size[:, :, size] += weights[:, None, column] * covered[None, :, column]
        self._waste_weight = by_size
        self._lost_weight = _grained(weight).sum() - by_size.sum(axis=2)

    def _fragment(self, group: Ints, cpu: Floats, total: Floats, waste: Floats) -> Floats:
        covered = np.searchsorted(self._cuts, cpu, side="right")
        found: Floats = total * self._lost_weight[group, covered]
        found += np.einsum("ng,ng->n", waste, self._waste_weight[group, covered])
        return found


def _allowed(shapes: Sequence[Shape], models: Sequence[str]) -> Floats:
    """Return 1 where a model may hold a shape, (models + 1, shapes); the last row is for nodes of no known model."""
    names = [*models, ""]
    return np.array(
        [[float(model_place(shape.models, name) >= 0) for shape in shapes] for name in names], np.float64
    ).reshape(len(names), len(shapes))


def _groups(shapes: Sequence[Shape], models: Sequence[str]) -> Ints:
    """Return the group of each model, (models + 1,): models that allow the same shapes share one. Index -1 = none."""
    if not shapes:
        return np.zeros(len(models) + 1, np.int64)
    return np.unique(_allowed(shapes, models), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _shares(amounts: Floats) -> Floats:
    total = amounts.sum()
    return amounts / total if total > 0 else amounts


def _grained(values: Floats) -> Floats:
    grain = 2.0**-22
    found: Floats = np.round(values / grain) * grain
    return found


def _prefix(rows: Floats) -> Floats:
    return np.concatenate((np.zeros((len(rows), 1)), np.cumsum(rows, axis=1)), axis=1)
