"""Whether the topology spreads of pods that come together hold with all of them there. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from binpack.company import Company
from fleet.pod import Pod


def shaken(company: Company, placed: Iterable[tuple[Pod, str]]) -> list[Pod]:
    """Return the pods whose hard topology spread others of them break; each is counted on its node already.

    kube-scheduler takes pins in an order of its own, so that each must hold beside all the others.
    """
    return [pod for pod, node in placed if _has_hard_spread(pod) and not _holds(company, pod, node)]


def shaken_by(company: Company, placed: Iterable[tuple[Pod, str]]) -> list[Pod]:
    """Return what `shaken` does of pods that are not counted anywhere yet."""
    pods = list(placed)
    if not any(_has_hard_spread(pod) for pod, _ in pods):
        return []
    for pod, node in pods:
        company.enter(pod, node)
    found = shaken(company, pods)
    for pod, node in pods:
        company.leave(pod, node)
    return found


def _has_hard_spread(pod: Pod) -> bool:
    return any(spread.is_hard for spread in pod.guest.spreads)


def _holds(company: Company, pod: Pod, node: str) -> bool:
    company.leave(pod, node)
    is_allowed = company.allows(pod, node)
    company.enter(pod, node)
    return is_allowed
