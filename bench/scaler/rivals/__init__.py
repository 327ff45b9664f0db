"""What other projects' autoscalers would have done: the same target, the same seconds, their documented defaults."""

from __future__ import annotations

from collections.abc import Callable

from bench.scaler.rivals import kpa_program
from bench.scaler.rivals.aibrix import AiBrix
from bench.scaler.rivals.hpa import Hpa
from bench.scaler.rivals.keda import Keda
from bench.scaler.rivals.knative import Knative
from bench.scaler.rivals.knative_real import RealKnative
from bench.scaler.rivals.ray import RayServe
from bench.scaler.rivals.spec import Spec
from berthmaster.local.progress import Report
from scaler.simulate.contract import Autoscaler

# Called with target, slots per replica, start time in seconds, most replicas.
Rival = Callable[[float, float, float, int], Autoscaler]


def knative(target: float, slots: float, start_s: float, maximum: int) -> Autoscaler:
    """Return Knative's own autoscaler where `prepare` or an earlier run has built it, else the re-made one."""
    program = kpa_program.cached()
    if program.exists():
        return RealKnative(target, slots, start_s, maximum, program=program)
    return Knative(target, slots, start_s, maximum)


RIVALS: dict[str, Rival] = {
    "HPA": Hpa,
    "KEDA": Keda,
    "Knative": knative,
    "Ray Serve": RayServe,
    "AIBrix": AiBrix,
    "spec": Spec,
}


def prepare(report: Report) -> str:
    """Build Knative's own autoscaler if Go is here, and return one line on which Knative the figures are about."""
    try:
        program = kpa_program.ensure(report)
    except kpa_program.RivalError as error:
        return f"Knative: re-made after {kpa_program.VERSION}, because {error}"
    if program is None:
        return f"Knative: re-made after {kpa_program.VERSION}, because there is no Go here to build the real one"
    return f"Knative: its own knative.dev/serving {kpa_program.VERSION}"
