"""When two texts name the same container image. Pure.

A kubelet spells short names out: `nginx` is `docker.io/library/nginx:latest` (distribution reference normalisation).
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=8192)
def full_name(reference: str) -> str:
    """Return a reference as the kubelet spells it out: with registry, repository and tag or digest."""
    name, at, digest = reference.partition("@")
    head, slash, _ = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif not ("." in head or ":" in head or head == "localhost"):
        name = f"docker.io/{name}"
    if at:
        repository, colon, tag = name.rpartition(":")
        return f"{repository if colon and '/' not in tag else name}@{digest}"
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def digest_of(reference: str) -> str:
    """Return `sha256:…` of a reference by digest, "" of one by tag."""
    return reference.partition("@")[2]
