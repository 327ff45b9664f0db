"""Phi over arrays against its definition in plain loops, and the tables it is made of."""

from __future__ import annotations

import random

import numpy as np
import pytest

from binpack.index import Mix, Shape, Weights, default_mix
from binpack.index.device_value import frozen_value_table, value_table
from binpack.index.potential import Potential
from binpack.trace import load_pods
from tests.support import value_policy

MODELS = ("A", "B", "C")


def a_mix(seed: int) -> Mix:
    generator = random.Random(seed)
    counts = {}
    for _ in range(generator.randint(1, 12)):
        counts[
            Shape(
                milli_cpu=generator.choice([0, 500, 1000, 4000, 11_400, 12_000]),
                count=generator.choice([0, 1, 1, 1, 2, 8]),
                milli_gpu=generator.choice([50, 230, 320, 470, 500, 810, 1000]),
                models=generator.choice([(), (), ("A",), ("A", "C")]),
            )
        ] = generator.randint(1, 50)
    return Mix.of(counts)


@pytest.mark.parametrize("seed", range(30))
def test_phi_equals_its_definition(seed: int) -> None:
    generator = random.Random(seed)
    mix = a_mix(seed)
    values = frozen_value_table()
    potential = Potential(mix, MODELS, values, Weights())
    model = np.array([generator.randint(-1, 2) for _ in range(50)])
    cpu = np.array([generator.choice([0, 300, 1000, 5000, 40_000, 128_000]) for _ in range(50)])
    residual = np.array([[generator.choice([0, 1, 229, 230, 470, 999, 1000]) for _ in range(8)] for _ in range(50)])
    found = potential.phi(model, cpu, potential.summaries(residual))
    typical = value_policy.kinds(mix)
    for row in range(50):
        name = MODELS[model[row]] if model[row] >= 0 else ""
        wanted = value_policy.phi(typical, values, name, int(cpu[row]), residual[row].tolist())
        assert found[row] == pytest.approx(wanted, abs=0.05)


def test_phi_does_not_depend_on_how_many_rows_are_asked_at_once_or_on_device_order() -> None:
    generator = random.Random(7)
    potential = Potential(default_mix(), ("G2",), frozen_value_table(), Weights())
    residual = np.array([[generator.randint(0, 1000) for _ in range(8)] for _ in range(200)])
    model = np.zeros(200, np.int64)
    cpu = np.array([generator.randint(0, 128_000) for _ in range(200)])
    together = potential.phi(model, cpu, potential.summaries(residual))
    alone = [
        potential.phi(model[i : i + 1], cpu[i : i + 1], potential.summaries(residual[i : i + 1])) for i in range(200)
    ]
    turned = potential.phi(model, cpu, potential.summaries(residual[:, ::-1]))
    assert together.tolist() == [float(row[0]) for row in alone] == turned.tolist()


def test_without_any_single_gpu_shape_only_the_device_value_counts() -> None:
    mix = Mix.of({Shape(milli_cpu=1000): 5, Shape(milli_cpu=1000, count=8, milli_gpu=1000): 5})
    potential = Potential(mix, (), frozen_value_table(), Weights())
    found = potential.phi(np.array([-1]), np.array([0]), potential.summaries(np.array([[1000, 470]])))
    assert found.tolist() == [-(810.0 + 405.0)]


def test_the_frozen_values_are_those_of_the_published_table() -> None:
    values = frozen_value_table()
    for residual, value in (
        (0, 0),
        (229, 67.5),
        (230, 202.5),
        (320, 270),
        (460, 405),
        (550, 540),
        (690, 607.5),
        (780, 742.5),
    ):
        assert values[residual] == value
    assert values[809] == 742.5
    assert set(values[810:]) == {810.0}


def test_the_frozen_values_are_what_the_linear_program_gives() -> None:
    from binpack.solver.device_value import device_values

    assert value_table(device_values(default_mix())).tolist() == frozen_value_table().tolist()


def test_the_default_mix_is_that_of_the_default_trace() -> None:
    from binpack.index import mix_of

    assert default_mix() == mix_of(load_pods("default"))
