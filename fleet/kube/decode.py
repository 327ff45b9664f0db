"""Kubernetes objects to values. Total: whatever an object holds, a value comes out that names its problems.

An object whose fields have the wrong JSON types does not get here; parsing (`fleet.kube.objects`) refuses it.
"""

from __future__ import annotations

from fleet.kube.decode_node import node_from
from fleet.kube.decode_pod import pod_from

__all__ = ["node_from", "pod_from"]
