"""Manifests and indexes of images: what to fetch for a platform. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

import msgspec

from warmpool.fetch.errors import Refused, WrongContent

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEXES = frozenset({INDEX, "application/vnd.docker.distribution.manifest.list.v2+json"})
_MANIFESTS = frozenset({MANIFEST, "application/vnd.docker.distribution.manifest.v2+json"})
ACCEPT = ", ".join(sorted(_INDEXES | _MANIFESTS))
# The distribution specification asks registries to take manifests of 4 MiB, and clients not to expect more.
LARGEST_BYTES = 4 * 2**20
_MOST_BLOBS = 4096
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})\Z")


class _Platform(msgspec.Struct):
    architecture: str = ""
    os: str = ""
    variant: str = ""


class _Descriptor(msgspec.Struct, rename="camel"):
    media_type: str
    digest: str
    size: int
    platform: _Platform | None = None


class _Document(msgspec.Struct, rename="camel"):
    schema_version: int
    media_type: str = ""
    manifests: list[_Descriptor] | None = None
    config: _Descriptor | None = None
    layers: list[_Descriptor] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A descriptor: content named by its checksum.

    Attributes:
        sha256: 64 hex digits.
        platform: "os/architecture[/variant]" where an index says so, else empty.
    """

    media_type: str
    sha256: str
    size_bytes: int
    platform: str = ""

    @property
    def digest(self) -> str:
        """Return it as descriptors write it."""
        return f"sha256:{self.sha256}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One decoded document.

    Attributes:
        raw: Its exact bytes, which its digest is of.
        media_type: Of itself.
        children: Of an index: its manifests. Empty for a manifest.
        blobs: Of a manifest: configuration and layers, each once. Empty for an index.
    """

    raw: bytes
    media_type: str
    children: tuple[Blob, ...] = ()
    blobs: tuple[Blob, ...] = ()

    @property
    def sha256(self) -> str:
        """Return its checksum."""
        return hashlib.sha256(self.raw).hexdigest()

    @property
    def blob(self) -> Blob:
        """Return the descriptor of itself."""
        return Blob(media_type=self.media_type, sha256=self.sha256, size_bytes=len(self.raw))


def decoded(raw: bytes, content_type: str, place: str, *, digest: str | None = None) -> Manifest:
    """Return the document behind these bytes.

    Args:
        raw: As they came.
        content_type: Of the answer; counts where the document does not say its own type.
        place: For messages.
        digest: What the bytes must have, where it is known.

    Raises:
        WrongContent: They have another digest.
        Refused: They are no image manifest that can be followed.
    """
    found = f"sha256:{hashlib.sha256(raw).hexdigest()}"
    if digest is not None and found != digest:
        raise WrongContent(f"{place}: the manifest has digest {found}, wanted is {digest}")
    try:
        document = msgspec.json.decode(raw, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(f"{place}: not an image manifest: {error}") from error
    media_type = document.media_type or content_type.partition(";")[0].strip()
    if document.schema_version != 2 or not (media_type in _INDEXES or media_type in _MANIFESTS):
        raise Refused(f"{place}: a manifest of schema {document.schema_version}, type {media_type!r} is not known here")
    if media_type in _INDEXES:
        return Manifest(raw=raw, media_type=media_type, children=_blobs(document.manifests, place))
    blobs = _blobs([*([document.config] if document.config else []), *(document.layers or [])], place)
    return Manifest(raw=raw, media_type=media_type, blobs=blobs)


def _blobs(descriptors: list[_Descriptor] | None, place: str) -> tuple[Blob, ...]:
    """Return them, each once. A digest becomes a file's name, so nothing but hex digits may stand in it."""
    if not descriptors or len(descriptors) > _MOST_BLOBS:
        raise Refused(f"{place}: the manifest lists {len(descriptors or ())} contents")
    found: dict[str, Blob] = {}
    for descriptor in descriptors:
        digest = _DIGEST.match(descriptor.digest)
        if digest is None or descriptor.size < 0:
            raise Refused(f"{place}: a content with digest {descriptor.digest[:80]!r}, size {descriptor.size}")
        platform = descriptor.platform
        parts = (platform.os, platform.architecture, platform.variant) if platform is not None else ()
        found.setdefault(
            digest.group(1),
            Blob(
                media_type=descriptor.media_type,
                sha256=digest.group(1),
                size_bytes=descriptor.size,
                platform="/".join(part for part in parts if part),
            ),
        )
    return tuple(found.values())


def for_platform(index: Manifest, platform: str, place: str) -> tuple[Blob, ...]:
    """Return the manifests of an index for "os/architecture[/variant]"; "all" takes each.

    Without a variant the first one of that architecture counts, one without a variant before the others.

    Raises:
        Refused: The image has none for it; the message names those it has.
    """
    if platform == "all":
        return index.children
    fitting = [child for child in index.children if child.platform == platform]
    fitting += [child for child in index.children if child.platform.startswith(f"{platform}/")]
    if fitting:
        return (fitting[0],)
    there = ", ".join(sorted({child.platform for child in index.children} - {"", "unknown/unknown"})) or "none named"
    raise Refused(f"{place}: not for {platform}; there is: {there}")
