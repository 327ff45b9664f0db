"""Images from a registry that speaks the real protocol, into an OCI image layout."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.support.fetching import HastyClock, means, ranged, serving
from tests.support.registry import FakeRegistry, digest_of
from warmpool.fetch.errors import DownloadError, Refused, WrongContent
from warmpool.fetch.places import Places
from warmpool.fetch.registry.challenge import Credential
from warmpool.fetch.registry.client import Repository
from warmpool.fetch.registry.image import Image, fetch_image
from warmpool.fetch.registry.layout import Layout
from warmpool.fetch.registry.reference import parsed
from warmpool.fetch.s3 import Bucket
from warmpool.fetch.web import Web

LAYERS = [random.Random(seed).randbytes(size) for seed, size in ((1, 3 * 2**20), (2, 2**18), (3, 100))]
WHOEVER = Credential(user="me", password="pass")


def registry(**more: Any) -> FakeRegistry:
    made = FakeRegistry(**more)
    amd = made.manifest(LAYERS, config=b'{"architecture": "amd64"}')
    arm = made.manifest(LAYERS[:1], config=b'{"architecture": "arm64"}')
    made.index([("linux/amd64", amd), ("linux/arm64/v8", arm)], "v1")
    made.manifest(LAYERS[1:], "plain")
    return made


async def fetched(
    fake: FakeRegistry,
    into: Path,
    *,
    tag: str = "v1",
    platform: str = "linux/amd64",
    credential: Credential | None = None,
    caches: tuple[str, ...] = (),
) -> Image:
    async with serving(fake.handle) as url, Web() as session:
        tools = means(retries=1)
        reference = parsed(f"{url.removeprefix('http://')}/team/llm{tag if tag.startswith('@') else ':' + tag}")
        repository = Repository(session, reference, credential, HastyClock(), is_plain=True)
        places = Places(web=session, caches=caches, bucket=Bucket)
        return await fetch_image(reference, repository, Layout(into), platform, places.cached, tools)


def check_layout(folder: Path) -> dict[str, Any]:
    """Return the last image of the layout's index; every blob has the checksum in its name, and none is missing."""
    assert json.loads((folder / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}
    for path in (folder / "blobs" / "sha256").iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    *_, image = json.loads((folder / "index.json").read_bytes())["manifests"]
    documents = [image]
    for entry in documents:
        raw = (folder / "blobs" / "sha256" / entry["digest"][7:]).read_bytes()
        assert len(raw) == entry["size"]
        if "manifest" in entry["mediaType"] or "index" in entry["mediaType"]:
            document = json.loads(raw)
            documents += document.get("manifests", [])
            documents += [*document.get("layers", []), *([document["config"]] if "config" in document else [])]
    return image  # type: ignore[no-any-return]


async def test_an_image_of_a_platform_lies_whole_in_the_layout(tmp_path: Path) -> None:
    found = await fetched(registry(), tmp_path / "images")
    image = check_layout(tmp_path / "images")
    assert image["digest"] == found.digest
    assert image["platform"] == {"os": "linux", "architecture": "amd64"}
    assert image["annotations"]["org.opencontainers.image.ref.name"] == "v1"
    assert len(found.blobs) == 4


async def test_all_platforms_keep_their_index(tmp_path: Path) -> None:
    found = await fetched(registry(), tmp_path, platform="all")
    assert check_layout(tmp_path)["digest"] == found.digest
    assert len(found.blobs) == 5


async def test_an_image_without_an_index_and_one_by_digest(tmp_path: Path) -> None:
    fake = registry()
    found = await fetched(fake, tmp_path / "a", tag="plain")
    check_layout(tmp_path / "a")
    again = await fetched(fake, tmp_path / "b", tag=f"@{found.digest}")
    assert again.digest == found.digest
    with pytest.raises(Refused, match="linux/amd64, linux/arm64/v8"):
        await fetched(fake, tmp_path / "c", platform="linux/riscv64")


@pytest.mark.parametrize("auth", ["none", "basic", "bearer"])
async def test_credentials_as_the_registry_asks_for_them(auth: str, tmp_path: Path) -> None:
    fake = registry(auth=auth, user="me:pass")
    await fetched(fake, tmp_path, credential=WHOEVER)
    check_layout(tmp_path)
    pair = "Basic " + base64.b64encode(b"me:pass").decode()
    shown_to = {path for path, secret in fake.heard if secret == pair}
    assert shown_to == {"none": set(), "bearer": {"/token"}}.get(auth, shown_to)
    assert fake.tokens == (auth == "bearer")


async def test_an_anonymous_token_a_refresh_token_and_one_that_runs_out(tmp_path: Path) -> None:
    await fetched(registry(auth="bearer"), tmp_path / "a")
    await fetched(registry(auth="bearer", user="a:b"), tmp_path / "b", credential=Credential(identity_token="refresh"))
    fake = registry(auth="bearer", uses_left=6)
    await fetched(fake, tmp_path / "c")
    assert fake.tokens > 1
    for name in "abc":
        check_layout(tmp_path / name)


@pytest.mark.parametrize("auth", ["basic", "bearer"])
@pytest.mark.parametrize("credential", [None, Credential(user="me", password="wrong")])
async def test_wrong_credentials_are_told_without_showing_them(
    auth: str, credential: Credential | None, tmp_path: Path
) -> None:
    with pytest.raises(Refused, match="401") as failed:
        await fetched(registry(auth=auth, user="me:pass"), tmp_path, credential=credential)
    assert "wrong" not in str(failed.value)


async def test_blobs_behind_a_redirect_come_without_the_token(tmp_path: Path) -> None:
    fake = registry(auth="bearer")
    heard: list[str | None] = []

    async def cdn(request: web.Request) -> web.Response:
        heard.append(request.headers.get("Authorization"))
        return ranged(request, fake.blobs[request.path.strip("/")])

    async with serving(cdn) as url:
        fake.cdn = url
        await fetched(fake, tmp_path)
    check_layout(tmp_path)
    assert set(heard) == {None}


async def test_a_blob_that_is_not_what_the_manifest_says_leaves_no_image(tmp_path: Path) -> None:
    fake = registry()
    fake.blobs[digest_of(LAYERS[0])] = bytes(len(LAYERS[0]))
    with pytest.raises(WrongContent, match="sha256"):
        await fetched(fake, tmp_path)
    assert not (tmp_path / "index.json").exists()
    assert not (tmp_path / "blobs" / "sha256" / digest_of(LAYERS[0])[7:]).exists()


async def test_a_manifest_that_is_not_what_its_digest_says_is_refused(tmp_path: Path) -> None:
    fake = registry()
    wanted = digest_of(fake.manifests["plain"][1])
    fake.manifests[wanted] = fake.manifests["v1"]
    with pytest.raises(WrongContent, match="digest"):
        await fetched(fake, tmp_path, tag=f"@{wanted}")


async def test_what_is_in_the_layout_is_checked_and_not_fetched_again(tmp_path: Path) -> None:
    fake = registry()
    await fetched(fake, tmp_path)
    rotten = tmp_path / "blobs" / "sha256" / digest_of(LAYERS[1])[7:]
    rotten.write_bytes(bytes(len(LAYERS[1])))
    fake.heard.clear()
    found = await fetched(fake, tmp_path)
    check_layout(tmp_path)
    assert {path.rsplit("/", 1)[1] for path, _ in fake.heard if "/blobs/" in path} == {digest_of(LAYERS[1])}
    assert sum(blob.received_bytes for blob in found.blobs) == len(LAYERS[1])


async def test_a_layout_is_a_cache_for_the_next_node(tmp_path: Path) -> None:
    fake = registry()
    await fetched(fake, tmp_path / "peer")
    fake.heard.clear()
    await fetched(fake, tmp_path / "node", caches=(str(tmp_path / "peer"),))
    check_layout(tmp_path / "node")
    assert not any("/blobs/" in path for path, _ in fake.heard)


async def test_an_unknown_image_says_so(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="404"):
        await fetched(registry(), tmp_path, tag="none")
