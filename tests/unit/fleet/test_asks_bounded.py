"""One annotation may not cost everybody: what a pod asks is bounded in length and in numbers."""

from __future__ import annotations

import pytest

from fleet import labels
from fleet.kube.asks import ask_of

WHOLE = ((labels.GPU, 1),)


@pytest.mark.parametrize(
    ("devices", "notes", "words"),
    [
        pytest.param(WHOLE, {labels.GPU_MODELS: ",".join(f"m{i}" for i in range(65))}, "65 models", id="models"),
        pytest.param(
            ((labels.HAMI_MEMORY, 5), (labels.NVIDIA_GPU, 1)),
            {labels.HAMI_USE_MODELS: ",".join(f"m{i}" for i in range(65))},
            "65 models",
            id="hami models",
        ),
        pytest.param((), {labels.KAI_GPU_MEMORY: "1e400"}, "beyond any machine", id="huge memory"),
        pytest.param(
            (),
            {labels.KAI_GPU_FRACTION: "0.5", labels.KAI_GPU_FRACTION_DEVICES: "1e18"},
            "beyond any machine",
            id="many devices",
        ),
    ],
)
def test_what_is_beyond_reason_is_a_problem(devices, notes, words):
    asked = ask_of(devices, notes)
    assert asked.ask is None
    assert words in asked.problems[0]
    assert len(asked.problems[0]) < 200


def test_as_many_models_as_there_may_be():
    asked = ask_of(WHOLE, {labels.GPU_MODELS: ",".join(f"m{i}" for i in range(64))})
    assert len(asked.ask.models) == 64
