"""Volume claims, volumes, storage classes and drivers, as far as they decide on which node a pod can run."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.constraints import NodeTerm

NO_PROVISIONER = "kubernetes.io/no-provisioner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A PersistentVolumeClaim.

    Attributes:
        volume: Name of the volume that it names; "" = none yet.
        is_bound: Bound for good: it names a volume and the volume controller says that it is done.
        class_name: Its storage class; "" = none.
        selected_node: Node that a scheduler has chosen to provision it for; "" = none.
        is_for_one_pod: Access mode ReadWriteOncePod: one pod in the whole cluster may use it.
        is_leaving: It is being deleted.
    """

    namespace: str
    name: str
    volume: str = ""
    is_bound: bool = False
    class_name: str = ""
    selected_node: str = ""
    is_for_one_pod: bool = False
    is_leaving: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A PersistentVolume.

    Attributes:
        terms: Its required node affinity, any one of which suffices; None = every node reaches it.
        labels: Its zone and region labels, which bind nodes that have such labels themselves.
    """

    name: str
    terms: tuple[NodeTerm, ...] | None = None
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClass:
    """A StorageClass.

    Attributes:
        provisioner: Who makes its volumes; `NO_PROVISIONER` = nobody, they are there or not.
        waits_for_pod: Binding mode WaitForFirstConsumer.
        terms: Allowed topologies, any one of which suffices; empty = anywhere.
    """

    name: str
    provisioner: str = ""
    waits_for_pod: bool = False
    terms: tuple[NodeTerm, ...] = ()
