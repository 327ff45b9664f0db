"""Whether the rules between pods that come together hold with all of them there. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from binpack.company import Company
from fleet.pod import Pod


def shaken(company: Company, placed: Iterable[tuple[Pod, str]]) -> list[Pod]:
    """Return the pods whose topology spread or affinity does not hold beside the others; each is counted already.

    kube-scheduler takes pins in an order of its own, so that each must hold beside all the others: nobody may count on
    being the first whom its own affinity names.
    """
    return [pod for pod, node in placed if _minds_order(pod) and not company.holds(pod, node)]


def misfit(company: Company, placed: Iterable[tuple[Pod, str]]) -> Pod | None:
    """Return a pod that a rule between pods keeps from its node beside the others; None = all may come.

    None of them is counted anywhere yet. One that must join another may come after it.
    """
    waiting, there = list(placed), list[tuple[Pod, str]]()
    if not any(company.is_involved(pod) for pod, _ in waiting):
        return None
    try:
        while waiting:
            welcome = [one for one in waiting if _enters(company, *one)]
            if not welcome:
                return waiting[0][0]
            there += welcome
            waiting = [one for one in waiting if one not in welcome]
        return next(iter(shaken(company, there)), None)
    finally:
        for pod, node in there:
            company.leave(pod, node)


def _enters(company: Company, pod: Pod, node: str) -> bool:
    is_allowed = company.allows(pod, node)
    if is_allowed:
        company.enter(pod, node)
    return is_allowed


def _minds_order(pod: Pod) -> bool:
    return bool(pod.guest.affinity) or any(spread.is_hard for spread in pod.guest.spreads)
