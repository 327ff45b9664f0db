"""Names of images. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from warmpool.fetch.errors import Refused

DOCKER_HUB = "docker.io"
_DOCKER_HUB_HOST = "registry-1.docker.io"
# Grammar of the OCI distribution specification 1.1, "Pulling manifests".
_REPOSITORY = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*\Z")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_HOST = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)(:\d{1,5})?\Z")
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One image.

    Attributes:
        registry: Host with port, as people write it.
        repository: Path in it.
        tag: None where only the digest counts.
        digest: "sha256:...", None where only the tag is known.
    """

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @property
    def host(self) -> str:
        """Return whom to ask."""
        return _DOCKER_HUB_HOST if self.registry == DOCKER_HUB else self.registry

    @property
    def is_loopback(self) -> bool:
        """Return whether it is on this machine, where plain HTTP is usual."""
        return self.host.rsplit(":", 1)[0] in _LOOPBACK or self.host in _LOOPBACK

    @property
    def wanted(self) -> str:
        """Return what to ask for: the digest where there is one."""
        return self.digest or self.tag or "latest"

    def __str__(self) -> str:
        """Return the full name."""
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.registry}/{self.repository}{tag}{digest}"


def parsed(text: str) -> Reference:
    """Return the reference, with Docker's defaults: docker.io, library/, latest.

    Raises:
        Refused: It is none.
    """
    rest, _, digest = text.removeprefix("oci://").removeprefix("docker://").partition("@")
    head, slash, tail = rest.partition("/")
    has_host = bool(slash) and ("." in head or ":" in head or head == "localhost")
    registry, path = (head, tail) if has_host else (DOCKER_HUB, rest)
    registry = DOCKER_HUB if registry in {"index.docker.io", _DOCKER_HUB_HOST} else registry
    repository, colon, tag = path.partition(":")
    if registry == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    is_named = _HOST.match(registry) is not None and _REPOSITORY.match(repository) is not None and len(path) <= 512
    if not is_named or (colon and not _TAG.match(tag)) or ("@" in text and not _DIGEST.match(digest)):
        raise Refused(f"{text!r} is not the name of an image (registry/repository:tag@sha256:...)")
    is_bare = not tag and not digest
    return Reference(
        registry=registry, repository=repository, tag="latest" if is_bare else tag or None, digest=digest or None
    )
