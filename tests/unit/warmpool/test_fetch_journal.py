"""The journal beside a partial file: read back as written, and nothing else is believed."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmpool.fetch.journal import Journal, decoded, encoded, identity, resumable
from warmpool.fetch.spans import Span, merged

SIZES = st.integers(0, 2**50)


@st.composite
def journals(draw: st.DrawFn) -> Journal:
    size = draw(SIZES)
    points = draw(st.lists(st.integers(0, size), max_size=12))
    spans = merged(Span(min(pair), max(pair)) for pair in zip(points[::2], points[1::2], strict=False))
    return Journal(identity=draw(st.text(max_size=80)), size_bytes=size, inode=draw(st.integers(0, 2**63)), done=spans)


@given(journals())
def test_what_was_written_is_read(journal: Journal) -> None:
    assert decoded(encoded(journal)) == journal


@given(journals(), st.data())
def test_a_cut_or_a_flipped_bit_is_never_believed(journal: Journal, data: st.DataObject) -> None:
    raw = encoded(journal)
    assert decoded(raw[: data.draw(st.integers(0, len(raw) - 1))]) is None
    position = data.draw(st.integers(0, len(raw) - 1))
    flipped = bytearray(raw)
    flipped[position] ^= 1 << data.draw(st.integers(0, 7))
    assert decoded(bytes(flipped)) is None


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(raw: bytes) -> None:
    assert decoded(raw) is None


@pytest.mark.parametrize(
    "line",
    [
        b'{"version":2,"identity":"a","size_bytes":9,"inode":1,"done":[]}',
        b'{"version":1,"identity":"a","size_bytes":9,"inode":1,"done":[[0,10]]}',
        b'{"version":1,"identity":"a","size_bytes":9,"inode":1,"done":[[-1,3]]}',
        b'{"version":1,"identity":"a","size_bytes":9,"inode":1,"done":[[4,6],[1,2]]}',
        b'{"version":1,"identity":"a","size_bytes":9,"inode":1,"done":[[3,3]]}',
        b'{"version":1,"identity":"a","size_bytes":-9,"inode":1,"done":[]}',
        b'{"version":1,"identity":"a","size_bytes":9,"inode":1,"done":[],"more":1}',
    ],
)
def test_a_journal_that_cannot_be_true_is_not_believed(line: bytes) -> None:
    assert decoded(line + b"\n%08x\n" % zlib.crc32(line)) is None


def test_only_the_same_bytes_of_the_same_file_are_gone_on_with() -> None:
    kept = Journal(identity="sha256:a", size_bytes=9, inode=5, done=(Span(0, 4),))
    asked = {"wanted": "sha256:a", "size_bytes": 9, "inode": 5, "partial_bytes": 9}
    assert resumable(kept, **asked) == (Span(0, 4),)  # type: ignore[arg-type]
    for name, other in (
        ("wanted", "sha256:b"),
        ("wanted", None),
        ("size_bytes", 8),
        ("inode", 6),
        ("partial_bytes", 4),
    ):
        assert resumable(kept, **(asked | {name: other})) == ()  # type: ignore[arg-type]
    assert resumable(None, **asked) == ()  # type: ignore[arg-type]


def test_a_checksum_says_the_same_of_every_source_and_a_version_only_of_its_own() -> None:
    assert identity("ab", "http://a", '"1"') == identity("ab", "s3://b/c", None)
    assert identity(None, "http://a", '"1"') != identity(None, "http://b", '"1"')
    assert identity(None, "http://a", '"1"') != identity(None, "http://a", '"2"')
    assert identity(None, "http://a", None) is None
