"""Objects through obstore from an endpoint that speaks S3's GET, HEAD and listing.

The endpoint looks whether a request is signed and by whom, not whether the signature is right: signing is obstore's.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from fleet.errors import BerthmasterError
from tests.support.fetching import means, ranged, serving
from warmpool.fetch.download import Fetched, Wanted, fetch
from warmpool.fetch.errors import DownloadError, NotThere, Refused, Unavailable
from warmpool.fetch.s3 import Bucket, S3Source, bucket_and_key

pytest.importorskip("obstore")

CONTENT = random.Random(5).randbytes(4 * 2**20 + 1)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class FakeS3:
    def __init__(self) -> None:
        self.objects = {"llm/model.bin": CONTENT, "llm/deep/config.json": b"{}", "other": b"x"}
        self.failures = 0
        self.versions = iter(['"v1"'] * 10**4)
        self.spans: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if "Credential=AKID/" not in request.headers.get("Authorization", ""):
            return web.Response(status=403)
        key = request.path.removeprefix("/models").strip("/")
        if not key:
            return self._listing(request.query.get("prefix", ""))
        if key not in self.objects:
            return web.Response(status=404)
        if request.method == "GET" and self.failures:
            self.failures -= 1
            return web.Response(status=503)
        tag = next(self.versions)
        if request.headers.get("If-Match", tag) != tag:
            return web.Response(status=412)
        if request.method == "GET":
            self.spans.append(request.headers.get("Range", ""))
        answer = ranged(request, self.objects[key], tag=tag)
        answer.headers["Last-Modified"] = "Mon, 30 Nov 2026 10:00:00 GMT"
        return answer

    def _listing(self, prefix: str) -> web.Response:
        found = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(raw)}</Size><LastModified>2026-11-30T10:00:00.000Z</LastModified>"
            f'<ETag>"v1"</ETag></Contents>'
            for key, raw in sorted(self.objects.items())
            if key.startswith(prefix)
        )
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>"
        return web.Response(text=body, content_type="application/xml")


@pytest.fixture
def fake() -> FakeS3:
    return FakeS3()


@pytest.fixture
async def bucket(fake: FakeS3, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bucket]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    async with serving(fake.handle) as url:
        yield Bucket("models", endpoint=url)


async def fetched(bucket: Bucket, target: Path, key: str = "llm/model.bin", *, retries: int = 6) -> Fetched:
    return await fetch(Wanted(target=target), [S3Source(bucket, key)], means(retries=retries))


async def test_an_object_comes_in_spans(bucket: Bucket, fake: FakeS3, tmp_path: Path) -> None:
    found = await fetched(bucket, tmp_path / "model")
    assert (found.sha256, found.source) == (SHA256, "s3://models/llm/model.bin")
    assert len(fake.spans) == len(set(fake.spans)) >= 4
    assert all(fake.spans)


async def test_failures_pass_and_what_came_is_kept(bucket: Bucket, fake: FakeS3, tmp_path: Path) -> None:
    fake.failures = 3
    assert (await fetched(bucket, tmp_path / "a")).sha256 == SHA256
    fake.failures = 99
    with pytest.raises(Unavailable, match="503"):
        await fetched(bucket, tmp_path / "b", retries=1)


async def test_a_changed_object_is_never_mixed(bucket: Bucket, fake: FakeS3, tmp_path: Path) -> None:
    fake.versions = iter(['"v1"'] * 3 + ['"v2"'] * 99)
    assert (await fetched(bucket, tmp_path / "model")).sha256 == SHA256


async def test_all_objects_under_a_prefix(bucket: Bucket) -> None:
    assert await bucket.keys("llm/") == ["llm/deep/config.json", "llm/model.bin"]
    with pytest.raises(NotThere):
        await bucket.keys("none/")


async def test_what_is_not_there_and_who_may_not(
    bucket: Bucket, fake: FakeS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotThere, match="s3://models/none"):
        await fetched(bucket, tmp_path / "model", "none")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "SOMEBODY")
    async with serving(fake.handle) as url:
        with pytest.raises(DownloadError, match="403") as failed:
            await fetched(Bucket("models", endpoint=url), tmp_path / "model")
    assert isinstance(failed.value, Refused)


@pytest.mark.parametrize(
    "url", ["s3://bucket", "s3:///key", "s3://key:secret@bucket/a", "s3://bucket/a?x=1", "http://a/b"]
)
def test_addresses_of_objects(url: str) -> None:
    assert bucket_and_key("s3://bucket/a%20b/c") == ("bucket", "a b/c")
    with pytest.raises(BerthmasterError):
        bucket_and_key(url)
