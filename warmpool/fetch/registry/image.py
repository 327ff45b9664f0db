"""A whole image, from registry or caches, into a layout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from warmpool.fetch.download import Fetched, Wanted, fetch
from warmpool.fetch.errors import Refused
from warmpool.fetch.means import Means
from warmpool.fetch.registry.client import Repository
from warmpool.fetch.registry.layout import Layout, entry
from warmpool.fetch.registry.manifest import Blob, Manifest, for_platform
from warmpool.fetch.registry.reference import Reference
from warmpool.fetch.several import at_once
from warmpool.fetch.source import Source
from warmpool.fetch.transfer import patient

# An index may hold indexes; nobody nests them deeper than this.
_DEEPEST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image that is in the layout.

    Attributes:
        digest: Of what the index of the layout names: the manifest, or the index for all platforms.
        blobs: Configurations and layers.
    """

    reference: str
    digest: str
    blobs: tuple[Fetched, ...]


async def fetch_image(
    reference: Reference,
    repository: Repository,
    layout: Layout,
    platform: str,
    caches: Callable[[str], Sequence[Source]],
    means: Means,
) -> Image:
    """Have the image in the layout; it enters the layout's index after its last blob.

    Args:
        reference: Its name.
        repository: Where it is.
        layout: Where it goes.
        platform: "os/architecture[/variant]", or "all".
        caches: Sources for a checksum that are asked before the registry.
        means: The tools.

    Raises:
        DownloadError: It is not to be had whole.
    """
    seen = means.meter.file(str(reference))
    seen.state, seen.source = "asking", reference.registry

    async def document(wanted: str) -> Manifest:
        return await patient(lambda: repository.manifest(wanted), means, seen)

    top = await document(reference.wanted)
    chosen, manifests = await _chosen(top, platform, str(reference), document)
    seen.state = "done"
    await asyncio.to_thread(layout.prepare)
    blobs = {blob.sha256: blob for found in manifests for blob in found.blobs}
    means.room.check_for(layout.folder, _missing_bytes(blobs.values(), layout))

    def had(blob: Blob) -> Callable[[], Awaitable[Fetched]]:
        wanted = Wanted(target=layout.blob_path(blob.sha256), sha256=blob.sha256, size_bytes=blob.size_bytes)
        sources = [*caches(blob.sha256), repository.blob(blob)]
        return lambda: fetch(wanted, sources, means)

    fetched = await at_once([had(blob) for blob in blobs.values()])
    for found in manifests:
        await asyncio.to_thread(layout.put, found.blob, found.raw)
    named = entry(chosen.blob, str(reference), reference.tag, "" if platform == "all" else platform)
    await asyncio.to_thread(layout.name, named)
    return Image(reference=str(reference), digest=chosen.blob.digest, blobs=tuple(fetched))


async def _chosen(
    top: Manifest, platform: str, place: str, document: Callable[[str], Awaitable[Manifest]]
) -> tuple[Manifest, tuple[Manifest, ...]]:
    """Return what the layout's index will name, and every document to store with it."""
    if platform == "all":
        return top, await _descendants(top, document, _DEEPEST)
    found = top
    for _ in range(_DEEPEST):
        if not found.children:
            return found, (found,)
        found = await document(for_platform(found, platform, place)[0].digest)
    raise Refused(f"{place}: indexes within indexes, more than {_DEEPEST} deep")


async def _descendants(
    top: Manifest, document: Callable[[str], Awaitable[Manifest]], deepest: int
) -> tuple[Manifest, ...]:
    if top.children and not deepest:
        raise Refused(f"indexes within indexes, more than {_DEEPEST} deep")
    found = [top]
    for child in top.children:
        found += await _descendants(await document(child.digest), document, deepest - 1)
    return tuple(found)


def _missing_bytes(blobs: Iterable[Blob], layout: Layout) -> int:
    return sum(blob.size_bytes for blob in blobs if not layout.blob_path(blob.sha256).exists())
