"""On which nodes a pod's volume claims let it run. Pure: a picture of claims, volumes and classes, and questions to it.

As kube-scheduler 1.37 judges it (plugins VolumeBinding and VolumeZone). What depends on more than this picture holds
(how much a driver can still provide on a node, which of several volumes a claim gets, who else uses a claim that is for
one pod) is left to kube-scheduler: such pods keep the mark `labels.VOLUME_CLAIMS` and are steered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from fleet import labels
from fleet.constraints import NodeTerm, Requirement
from fleet.pod import Pod
from fleet.volumes import NO_PROVISIONER, Claim, StorageClass, Volume

AnyOf = tuple[NodeTerm, ...]

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
# Zone and region labels, each with the name that replaced it.
ZONE_KEYS: Final = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    ZONE: ZONE,
    REGION: REGION,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reach:
    """What one claim asks of nodes.

    Attributes:
        rules: Each an any-of that must hold; empty = every node will do.
        lacks: Why nothing can be said yet, for people; "" = nothing is missing.
        is_sure: False where kube-scheduler knows more than these rules.
    """

    rules: tuple[AnyOf, ...] = ()
    lacks: str = ""
    is_sure: bool = False


class VolumeBook:
    """Claims, volumes, storage classes and drivers as the API shows them.

    Attributes:
        is_known: All of them have been listed; before that nothing is said about any pod's volumes.
    """

    def __init__(self) -> None:
        self.is_known = False
        self._claims: dict[tuple[str, str], Claim] = {}
        self._volumes: dict[str, Volume] = {}
        self._classes: dict[str, StorageClass] = {}
        self._with_capacity: set[str] = set()

    def set_claim(self, claim: Claim) -> None:
        """Take a new or changed claim."""
        self._claims[claim.namespace, claim.name] = claim

    def remove_claim(self, namespace: str, name: str) -> None:
        """Forget a claim."""
        self._claims.pop((namespace, name), None)

    def set_volume(self, volume: Volume) -> None:
        """Take a new or changed volume."""
        self._volumes[volume.name] = volume

    def remove_volume(self, name: str) -> None:
        """Forget a volume."""
        self._volumes.pop(name, None)

    def set_class(self, storage_class: StorageClass) -> None:
        """Take a new or changed storage class."""
        self._classes[storage_class.name] = storage_class

    def remove_class(self, name: str) -> None:
        """Forget a storage class."""
        self._classes.pop(name, None)

    def set_driver(self, name: str, *, tells_capacity: bool) -> None:
        """Learn whether a driver publishes how much it can provide where; kube-scheduler then asks for that too."""
        (self._with_capacity.add if tells_capacity else self._with_capacity.discard)(name)

    def resolved(self, pod: Pod) -> Pod:
        """Return the pod with the rules of its claims among its constraints, unmarked where these say all there is."""
        if not pod.claims or not self.is_known:
            return pod
        reaches = [self._reach(pod.namespace, name) for name in pod.claims]
        rules = tuple(dict.fromkeys(rule for reach in reaches for rule in reach.rules))
        is_sure = all(reach.is_sure for reach in reaches)
        unmodelled = tuple(name for name in pod.unmodelled if not (is_sure and name == labels.VOLUME_CLAIMS))
        return replace(pod, constraints=replace(pod.constraints, volumes=rules), unmodelled=unmodelled)

    def lacks(self, pod: Pod) -> str:
        """Return for which claims the pod must wait, and why; "" = for none."""
        if not pod.claims or not self.is_known:
            return ""
        return "; ".join(filter(None, (self._reach(pod.namespace, name).lacks for name in pod.claims)))

    def _reach(self, namespace: str, name: str) -> _Reach:
        claim = self._claims.get((namespace, name))
        if claim is None:
            return _Reach(lacks=f"claim {name} does not exist")
        if claim.is_leaving:
            return _Reach(lacks=f"claim {name} is being deleted")
        if claim.is_bound:
            volume = self._volumes.get(claim.volume)
            if volume is None:
                return _Reach(lacks=f"claim {name} is bound to volume {claim.volume}, which does not exist")
            return _Reach(rules=rules_of(volume), is_sure=not claim.is_for_one_pod)
        return self._unbound(claim)

    def _unbound(self, claim: Claim) -> _Reach:
        if not claim.class_name:
            return _Reach(lacks=f"claim {claim.name} is not bound, and has no storage class that would make a volume")
        storage_class = self._classes.get(claim.class_name)
        if storage_class is None:
            return _Reach(lacks=f"claim {claim.name} is of storage class {claim.class_name}, which does not exist")
        if claim.volume or not storage_class.waits_for_pod:
            return _Reach(lacks=f"claim {claim.name} is not bound yet")
        provisioner = storage_class.provisioner
        if provisioner in ("", NO_PROVISIONER) or provisioner in self._with_capacity:
            return _Reach()
        rules = [storage_class.terms] if storage_class.terms else []
        if claim.selected_node:
            node = Requirement(key=labels.NODE_NAME_FIELD, operator="In", values=(claim.selected_node,))
            rules.append((NodeTerm(fields=(node,)),))
        return _Reach(rules=tuple(rules), is_sure=not claim.is_for_one_pod)


def rules_of(volume: Volume) -> tuple[AnyOf, ...]:
    """Return what a volume asks of nodes: its node affinity, and its zones of nodes that are in any zone."""
    rules: list[AnyOf] = [] if volume.terms is None else [volume.terms]
    nowhere = NodeTerm(labels=tuple(Requirement(key=key, operator="DoesNotExist") for key in ZONE_KEYS))
    for key, text in volume.labels:
        values = tuple(text.split("__"))
        here = Requirement(key=key, operator="In", values=values)
        terms = [nowhere, NodeTerm(labels=(here,))]
        if ZONE_KEYS[key] != key:
            renamed = Requirement(key=ZONE_KEYS[key], operator="In", values=values)
            terms.append(NodeTerm(labels=(Requirement(key=key, operator="DoesNotExist"), renamed)))
        rules.append(tuple(terms))
    return tuple(rules)
