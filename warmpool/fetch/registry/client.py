"""One repository of a registry: its manifests, and its blobs as sources."""

from __future__ import annotations

from yarl import URL

from fleet.clock import Clock
from warmpool.fetch.http_source import HttpSource
from warmpool.fetch.registry import manifest
from warmpool.fetch.registry.challenge import Credential
from warmpool.fetch.registry.manifest import Blob, Manifest
from warmpool.fetch.registry.reference import Reference
from warmpool.fetch.registry.token import RegistryAuthorizer
from warmpool.fetch.web import Web


class Repository:
    """The pull side of the OCI distribution specification."""

    def __init__(
        self, web: Web, reference: Reference, credential: Credential | None, clock: Clock, *, is_plain: bool
    ) -> None:
        self._web = web
        self._reference = reference
        self._base = URL(f"{'http' if is_plain else 'https'}://{reference.host}/v2/{reference.repository}")
        scope = f"repository:{reference.repository}:pull"
        self._authorizer = RegistryAuthorizer(web, self._base, scope, credential, clock)

    async def manifest(self, wanted: str) -> Manifest:
        """Return the manifest or index of a tag or digest, checked against every digest that is known of it.

        Raises:
            Transient: Ask again.
            DownloadError: There is none to be had.
        """
        url = self._base / "manifests" / wanted
        raw, headers = await self._web.small(url, {"Accept": manifest.ACCEPT}, self._authorizer, manifest.LARGEST_BYTES)
        told = headers.get("Docker-Content-Digest", "")
        digest = wanted if wanted.startswith("sha256:") else told if told.startswith("sha256:") else None
        return manifest.decoded(raw, headers.get("Content-Type", ""), f"{self._reference} ({wanted})", digest=digest)

    def blob(self, blob: Blob) -> HttpSource:
        """Return where one blob is."""
        return HttpSource(self._web, self._base / "blobs" / blob.digest, self._authorizer)
