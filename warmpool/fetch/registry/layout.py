"""An OCI image layout in a folder: blobs by their digests, and an index of the images that are whole."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from warmpool.fetch.disk import write_whole
from warmpool.fetch.errors import DownloadError
from warmpool.fetch.registry.manifest import INDEX, Blob

_MARKER = "oci-layout"
_REFERENCE = "org.opencontainers.image.ref.name"
# Read by containerd and its tools, where the name alone is a tag.
_CONTAINERD_NAME = "io.containerd.image.name"


def entry(blob: Blob, name: str, tag: str | None, platform: str) -> dict[str, Any]:
    """Return the descriptor of an image for index.json. Pure."""
    annotations = {_CONTAINERD_NAME: name} | ({_REFERENCE: tag} if tag else {})
    found: dict[str, Any] = {"mediaType": blob.media_type, "digest": blob.digest, "size": blob.size_bytes}
    if platform:
        system, architecture, *variant = platform.split("/")
        found["platform"] = {"os": system, "architecture": architecture} | ({"variant": variant[0]} if variant else {})
    return found | {"annotations": annotations}


def joined(index: dict[str, Any], image: dict[str, Any]) -> dict[str, Any]:
    """Return the index with the image in it, in place of what had its name before. Pure."""
    name = image["annotations"][_CONTAINERD_NAME]
    others = [
        other
        for other in index.get("manifests", [])
        if not isinstance(other, dict) or (other.get("annotations") or {}).get(_CONTAINERD_NAME) != name
    ]
    return {"schemaVersion": 2, "mediaType": INDEX} | index | {"manifests": [*others, image]}


class Layout:
    """The folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def blob_path(self, sha256: str) -> Path:
        """Return where a blob goes."""
        return self.folder / "blobs" / "sha256" / sha256

    def prepare(self) -> None:
        """Make it a layout; what is there stays.

        Raises:
            DownloadError: It cannot be made.
        """
        try:
            self.blob_path("").mkdir(parents=True, exist_ok=True)
            if not (self.folder / _MARKER).exists():
                write_whole(self.folder / _MARKER, b'{"imageLayoutVersion":"1.0.0"}\n')
        except OSError as error:
            raise DownloadError(f"{self.folder}: {error.strerror}") from error

    def put(self, blob: Blob, raw: bytes) -> None:
        """Write a small blob that has been checked."""
        path = self.blob_path(blob.sha256)
        try:
            write_whole(path, raw)
        except OSError as error:
            raise DownloadError(f"{path}: {error.strerror}") from error

    def name(self, image: dict[str, Any]) -> None:
        """Put a whole image into the index; only from here on is it there for others.

        Raises:
            DownloadError: The index there is none, or cannot be written.
        """
        path = self.folder / "index.json"
        try:
            with self._lock():
                index = json.loads(path.read_bytes()) if path.exists() else {}
                if not isinstance(index, dict) or not isinstance(index.get("manifests", []), list):
                    raise DownloadError(f"{path}: not an OCI image index")
                write_whole(path, json.dumps(joined(index, image), indent=2).encode() + b"\n")
        except ValueError as error:
            raise DownloadError(f"{path}: not an OCI image index") from error
        except OSError as error:
            raise DownloadError(f"{path}: {error.strerror}") from error

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Wait for others that write the index; nobody holds it for longer than that."""
        descriptor = os.open(self.folder / _MARKER, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
