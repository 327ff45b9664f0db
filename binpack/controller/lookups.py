"""What must be looked up before a pod can be planned: the volumes of its claims, the labels of namespaces. Pure.

A pod as read says which claims it mounts and whether its rules select namespaces by their labels; which nodes that
leaves is known once the watches of those objects have listed them. Until then, and where the planner may not see them,
such pods are steered: kube-scheduler judges what is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from binpack.volumes import VolumeBook
from fleet import labels
from fleet.company import PodTerm
from fleet.pod import Pod


class Lookups:
    """Resolves pods, and keeps those that may read otherwise later, as they were read.

    Attributes:
        volumes: Claims, volumes, classes.
        knows_namespaces: Whether the labels of all namespaces are known.
        has_news: Something changed since `renewed` was last asked.
    """

    def __init__(self) -> None:
        self.volumes = VolumeBook()
        self.knows_namespaces = False
        self.has_news = False
        self._raw: dict[str, Pod] = {}

    def resolved(self, pod: Pod) -> Pod:
        """Return the pod as it can be planned now; it is renewed until `forget`."""
        selects_namespaces = labels.NAMESPACE_SELECTORS in pod.unmodelled
        if not pod.claims and not selects_namespaces:
            return pod
        self._raw[pod.uid] = pod
        if selects_namespaces:
            pod = _named(pod) if self.knows_namespaces else _unnamed(pod)
        return self.volumes.resolved(pod)

    def lacks(self, pod: Pod) -> str:
        """Return what the pod must wait for before it can be planned, in words; "" = nothing."""
        return self.volumes.lacks(pod) if pod.claims else ""

    def forget(self, uid: str) -> None:
        """Forget a pod that is no more to be planned."""
        self._raw.pop(uid, None)

    def renewed(self) -> Iterator[Pod]:
        """Yield every such pod as it can be planned now, if anything changed."""
        if self.has_news:
            self.has_news = False
            for pod in list(self._raw.values()):
                yield self.resolved(pod)


def _named(pod: Pod) -> Pod:
    return replace(pod, unmodelled=tuple(name for name in pod.unmodelled if name != labels.NAMESPACE_SELECTORS))


def _unnamed(pod: Pod) -> Pod:
    """Return the pod without the rules that select namespaces: kube-scheduler alone can judge them."""
    guest = pod.guest
    return replace(
        pod,
        guest=replace(
            guest,
            affinity=tuple(term for term in guest.affinity if not _selects(term)),
            anti=tuple(term for term in guest.anti if not _selects(term)),
        ),
    )


def _selects(term: PodTerm) -> bool:
    return term.namespace_selector is not None and not term.namespace_selector.is_everything
