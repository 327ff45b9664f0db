"""What stands in headers, names, lists and challenges, as text from outside."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from warmpool.fetch.errors import Refused, WrongContent
from warmpool.fetch.headers import content_range, is_other_version, retry_after_s, sha256_of, strong_validator
from warmpool.fetch.names import inside, shown
from warmpool.fetch.registry import manifest
from warmpool.fetch.registry.challenge import Credential, challenges, credentials, fitting
from warmpool.fetch.registry.layout import entry, joined
from warmpool.fetch.registry.manifest import Blob
from warmpool.fetch.registry.reference import parsed
from warmpool.fetch.retry import AUTO_MOST, Pace, pause_s
from warmpool.fetch.wanted import item, listed
from warmpool.fetch.web import next_hop

HEX = "ab" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bytes 0-9/100", (0, 10, 100)),
        ("bytes 5-5/*", (5, 6, None)),
        ("bytes */0", (0, 0, 0)),
        ("bytes 9-5/100", None),
        ("bytes 0-100/100", None),
        ("items 0-9/100", None),
        ("", None),
        (None, None),
    ],
)
def test_content_range(text: str | None, expected: tuple[int, int, int | None] | None) -> None:
    assert content_range(text) == expected


def test_only_what_two_versions_cannot_share_is_a_validator() -> None:
    modified = {"Last-Modified": "Mon, 30 Nov 2026 10:00:00 GMT", "Date": "Mon, 30 Nov 2026 10:00:01 GMT"}
    assert strong_validator({"ETag": '"a"'} | modified) == '"a"'
    assert strong_validator({"ETag": 'W/"a"'} | modified) == modified["Last-Modified"]
    assert strong_validator(modified | {"Date": modified["Last-Modified"]}) is None
    assert strong_validator({"ETag": 'W/"a"'}) is None
    assert strong_validator({"Last-Modified": "yesterday", "Date": "today"}) is None
    assert is_other_version('"a"', {"ETag": '"b"'})
    assert not is_other_version('"a"', {})


def test_checksums_that_servers_name() -> None:
    digest = base64.b64encode(bytes.fromhex(HEX)).decode()
    assert sha256_of({"Repr-Digest": f"sha-512=:AAAA:, sha-256=:{digest}:"}) == HEX
    assert sha256_of({"X-Linked-ETag": f'"{HEX}"'}) == HEX
    assert sha256_of({"X-Linked-ETag": '"d41d8cd98f00b204e9800998ecf8427e"'}) is None
    assert sha256_of({"Repr-Digest": "sha-256=:????:"}) is None


def test_patience_asked_for() -> None:
    assert retry_after_s({"Retry-After": "7"}) == 7
    dates = {"Retry-After": "Mon, 30 Nov 2026 10:00:09 GMT", "Date": "Mon, 30 Nov 2026 10:00:01 GMT"}
    assert retry_after_s(dates) == 8
    assert retry_after_s({"Retry-After": "soon"}) == retry_after_s({}) == 0


@given(st.integers(1, 10**6), st.floats(0, 10**9), st.floats(0, 1))
def test_pauses_grow_are_bounded_and_respect_the_server(failures: int, asked_s: float, jitter: float) -> None:
    found = pause_s(failures, asked_s, jitter)
    assert min(asked_s, 120.0) <= found <= 120.0
    assert pause_s(failures, 0.0, jitter) <= pause_s(failures + 1, 0.0, jitter) <= 20.0


def test_streams_double_while_that_pays_and_halve_when_the_server_complains() -> None:
    pace, streams = Pace(), []
    for rate in (10.0, 20.0, 38.0, 40.0, 90.0):
        pace = pace.after(rate, was_throttled=False)
        streams.append(pace.streams)
    assert streams == [8, 16, 32, 16, 16]
    flat = Pace().after(10.0, was_throttled=False).after(10.5, was_throttled=False)
    assert (flat.streams, flat.is_settled) == (4, True)
    assert Pace(streams=AUTO_MOST).after(1.0, was_throttled=True).streams == AUTO_MOST // 2


@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "../a", "a/../../b", "a/", "a\\b", "a\nb", "x" * 300, ".model.berthmaster-part", "."],
)
def test_names_from_outside_stay_inside(name: str, tmp_path: Path) -> None:
    with pytest.raises(Refused):
        inside(tmp_path, name)


def test_a_link_does_not_lead_out(tmp_path: Path) -> None:
    (tmp_path / "into").mkdir()
    (tmp_path / "into" / "link").symlink_to(tmp_path)
    with pytest.raises(Refused, match="link"):
        inside(tmp_path / "into", "link/model")
    assert inside(tmp_path / "into", "a/b.bin") == tmp_path / "into" / "a" / "b.bin"


@given(st.text(max_size=40))
def test_no_name_breaks_out(name: str) -> None:
    folder = Path("/nonexistent/folder")
    try:
        found = inside(folder, name)
    except Refused:
        return
    assert found.is_relative_to(folder)
    assert found != folder
    assert ".." not in found.parts


def test_no_secret_of_an_address_is_shown() -> None:
    text = shown("https://user:pass@host:8443/a/b.bin?X-Amz-Signature=secret#part")
    assert text == "https://host:8443/a/b.bin?…"
    assert shown("http://[::1]:80/x") == "http://[::1]:80/x"
    assert "secret" not in shown("http://[secret")


def test_wishes() -> None:
    found = item(f"https://host/a/model%20b.bin?x=1#sha256={HEX.upper()}")
    assert (found.name, found.sha256) == ("model b.bin", HEX)
    assert item("s3://bucket/models/llm/").is_prefix
    for bad in ("ftp://host/a", "host/a", "https://host/", "https://host/a#b", "https://host/a#sha256=12"):
        with pytest.raises(Refused):
            item(bad)
    with pytest.raises(Refused, match="differ"):
        item(f"https://host/a#sha256={HEX}", sha256="cd" * 32)


def test_lists_tell_every_problem_at_once() -> None:
    good = listed(f'[{{"url": "https://h/a", "path": "x/a"}}, {{"url": "https://h/b", "sha256": "{HEX}"}}]', "list")
    assert [(found.name, found.sha256) for found in good] == [("x/a", None), ("b", HEX)]
    with pytest.raises(Refused, match=r"entry 1: has no url; entry 2: has size, .*; entry 3: its sha256 is not a text"):
        listed("[{path: a}, {url: 'https://h/a', size: 3}, {url: 'https://h/a', sha256: 12}]", "list")
    with pytest.raises(Refused, match="more than one file would be named a"):
        listed("[{url: 'https://h/a'}, {url: 'https://i/a'}]", "list")
    for bad in ("{}", "[]", "]", "a"):
        with pytest.raises(Refused, match="list"):
            listed(bad, "list")


@pytest.mark.parametrize(
    ("text", "expected", "host"),
    [
        ("nginx", "docker.io/library/nginx:latest", "registry-1.docker.io"),
        ("vllm/vllm-openai:v0.25.1", "docker.io/vllm/vllm-openai:v0.25.1", "registry-1.docker.io"),
        ("localhost:5000/a/b", "localhost:5000/a/b:latest", "localhost:5000"),
        (f"ghcr.io/x/y@sha256:{HEX}", f"ghcr.io/x/y@sha256:{HEX}", "ghcr.io"),
        (f"oci://ghcr.io/x/y:t@sha256:{HEX}", f"ghcr.io/x/y:t@sha256:{HEX}", "ghcr.io"),
    ],
)
def test_references(text: str, expected: str, host: str) -> None:
    found = parsed(text)
    assert (str(found), found.host) == (expected, host)


@pytest.mark.parametrize(
    "text", ["", "UPPER", "a/../b", "ghcr.io/", "ghcr.io/a:", "ghcr.io/a@sha256:12", "ghcr.io/a b", "host.x/-a", "a@"]
)
def test_what_is_no_reference(text: str) -> None:
    with pytest.raises(Refused):
        parsed(text)


def test_challenges_as_registries_send_them() -> None:
    (bearer, basic) = challenges(
        ['Bearer realm="https://auth/token",service="reg",scope="repository:a:pull,push"', 'Basic realm="R \\"x\\""']
    )
    assert bearer.parameters == {"realm": "https://auth/token", "service": "reg", "scope": "repository:a:pull,push"}
    assert (basic.scheme, basic.parameters) == ("basic", {"realm": 'R "x"'})
    assert challenges(["", "Negotiate"])[-1].scheme == "negotiate"


@given(st.text(max_size=60))
def test_no_challenge_breaks_the_reader(header: str) -> None:
    challenges([header])


def test_pull_secrets() -> None:
    auth = base64.b64encode(b"me:pa:ss").decode()
    known = credentials(
        json.dumps(
            {
                "auths": {
                    "https://index.docker.io/v1/": {"auth": auth},
                    "ghcr.io": {"username": "a", "password": "b"},
                    "ghcr.io/team": {"identitytoken": "t"},
                    "*.example.com:8443": {"auth": auth},
                }
            }
        ).encode(),
        "config.json",
    )
    assert fitting(known, "docker.io", "library/nginx") == Credential(user="me", password="pa:ss")
    assert fitting(known, "ghcr.io", "team/x") == Credential(identity_token="t")
    assert fitting(known, "ghcr.io", "teams/x") == Credential(user="a", password="b")
    assert fitting(known, "reg.example.com:8443", "x") is not None
    assert fitting(known, "a.reg.example.com:8443", "x") is None
    assert fitting(known, "example.org", "x") is None
    assert "pa:ss" not in repr(known)
    assert credentials(json.dumps({"ghcr.io": {"auth": auth}}).encode(), "old")["ghcr.io"].user == "me"
    assert credentials(b'{"credsStore": "desktop"}', "helpers only") == {}
    for bad in (b"", b"[]", b'{"auths": {"a": {"auth": "!"}}}'):
        with pytest.raises(Refused):
            credentials(bad, "bad")


def descriptor(sha256: str, size: int = 3, **more: object) -> dict[str, object]:
    return {"mediaType": "application/x", "digest": f"sha256:{sha256}", "size": size, **more}


def test_manifests_are_what_their_digest_says() -> None:
    raw = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": manifest.MANIFEST,
            "config": descriptor("aa" * 32),
            "layers": [descriptor("bb" * 32), descriptor("bb" * 32)],
        }
    ).encode()
    found = manifest.decoded(raw, "", "here")
    assert [blob.sha256 for blob in found.blobs] == ["aa" * 32, "bb" * 32]
    assert manifest.decoded(raw, "", "here", digest=found.blob.digest) == found
    with pytest.raises(WrongContent):
        manifest.decoded(raw + b" ", "", "here", digest=found.blob.digest)


@pytest.mark.parametrize(
    "change",
    [
        {"layers": [descriptor("../../etc/passwd")]},
        {"layers": [descriptor("bb" * 32, size=-1)]},
        {"schemaVersion": 1},
        {"mediaType": "text/html"},
        {"config": None, "layers": []},
        {"layers": [descriptor("bb" * 32, size="many")]},
    ],
)
def test_manifests_that_cannot_be_followed(change: dict[str, object]) -> None:
    document = {"schemaVersion": 2, "mediaType": manifest.MANIFEST, "config": descriptor("aa" * 32), "layers": []}
    with pytest.raises(Refused):
        manifest.decoded(json.dumps(document | change).encode(), "", "here")


def test_the_platform_is_chosen_and_a_missing_one_names_those_there_are() -> None:
    arm = {"architecture": "arm64", "os": "linux", "variant": "v8"}
    children = [
        descriptor("aa" * 32, platform={"architecture": "amd64", "os": "linux"}),
        descriptor("bb" * 32, platform=arm),
        descriptor("cc" * 32, platform={"architecture": "unknown", "os": "unknown"}),
    ]
    raw = json.dumps({"schemaVersion": 2, "mediaType": manifest.INDEX, "manifests": children}).encode()
    index = manifest.decoded(raw, "", "here")
    assert manifest.for_platform(index, "linux/arm64", "here")[0].sha256 == "bb" * 32
    assert len(manifest.for_platform(index, "all", "here")) == 3
    with pytest.raises(Refused, match="there is: linux/amd64, linux/arm64/v8"):
        manifest.for_platform(index, "linux/s390x", "here")


def test_an_image_replaces_what_had_its_name_in_the_layout_and_nothing_else() -> None:
    def named(sha256: str, name: str) -> dict[str, object]:
        blob = Blob(media_type=manifest.MANIFEST, sha256=sha256, size_bytes=3)
        return entry(blob, name, "t", "linux/arm64/v8")

    index = joined(joined({"annotations": {"kept": "yes"}}, named("aa" * 32, "x:t")), named("bb" * 32, "y:t"))
    index = joined(index, named("cc" * 32, "x:t"))
    assert [one["digest"][7:9] for one in index["manifests"]] == ["bb", "cc"]
    assert index["annotations"] == {"kept": "yes"}
    assert index["manifests"][0]["platform"] == {"os": "linux", "architecture": "arm64", "variant": "v8"}


def test_a_redirect_never_leaves_tls_and_brings_no_secret_along() -> None:
    assert str(next_hop(URL("https://a/x"), "https://u:p@b/y?z=1")) == "https://b/y?z=1"
    assert str(next_hop(URL("http://a/x/1"), "../y")) == "http://a/y"
    with pytest.raises(Refused, match="from https to http://a/y"):
        next_hop(URL("https://a/x"), "http://a/y")
