"""What the API server would let an account do."""

from __future__ import annotations

import json

from fleet.kube.client import Client


async def is_allowed(admin: Client, user: str, verb: str, group: str, kind: str, name: str, namespace: str) -> bool:
    """Ask by SubjectAccessReview; `kind` may name a subresource after a slash."""
    resource, _, subresource = kind.partition("/")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user,
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {
                "verb": verb,
                "group": group,
                "resource": resource,
                "subresource": subresource,
                "name": name,
                "namespace": namespace,
            },
        },
    }
    answer = await admin.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", json.dumps(review).encode())
    return bool(json.loads(answer)["status"]["allowed"])
