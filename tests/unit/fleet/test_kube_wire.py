"""Lists and watch events, cut anywhere, with anything in them."""

from __future__ import annotations

import json
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.errors import DecodeError
from fleet.kube import wire
from fleet.kube.objects import MetaObject, PodMetaObject, PodObject
from fleet.kube.wire import Bookmark, Deleted, EventParser, Failed, ListParser, Unreadable, Upserted

# Strings that look like the borders the parser cuts at.
NASTY = st.sampled_from(['},{"metadata":{', '"items":[', "]}", "\n", '\\"', "\u2028", "x"])
EXTRA = st.one_of(
    st.text(max_size=8),
    NASTY,
    st.just([{"metadata": {"name": "inner"}}, {"metadata": {"name": "inner2"}}]),
    st.just({"a": [1, {"b": None}]}),
)


def item(name: str, extra=None, **meta):
    return {"metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", **meta}, "spec": {"other": extra}}


ITEMS = st.lists(EXTRA, max_size=12).map(lambda extras: [item(f"p{i}", extra) for i, extra in enumerate(extras)])


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(place % (len(data) + 1) for place in at)})
    return [data[a:b] for a, b in pairwise(places)]


def parse(body: bytes, at=(), kind=PodObject, slice_bytes=64):
    parser = ListParser(kind)
    parser._wanted = slice_bytes
    objects = []
    for chunk in cut(body, list(at)):
        objects += parser.feed(chunk)
    objects += parser.finish()
    return parser, objects


@settings(max_examples=300)
@given(items=ITEMS, at=st.lists(st.integers(0, 5000), max_size=20), is_sorted=st.booleans(), small=st.booleans())
def test_a_list_is_the_same_however_it_is_cut(
    items,
    at,
    is_sorted,
    small,
):
    meta = {"resourceVersion": "77", "continue": "abc"}
    page = {"kind": "PodList", "metadata": meta, "items": items}
    body = json.dumps(page, separators=(",", ":"), sort_keys=is_sorted).encode() + b"\n"
    original = wire._SLICE_BYTES
    wire._SLICE_BYTES = 64 if small else original
    try:
        parser, objects = parse(body, at)
    finally:
        wire._SLICE_BYTES = original
    assert [o.metadata.name for o in objects] == [i["metadata"]["name"] for i in items]
    assert (parser.meta.resource_version, parser.meta.continue_) == ("77", "abc")
    assert not parser.unreadable


def test_a_long_list_is_decoded_while_it_comes():
    items = [item(f"p{i}", "x" * 1000) for i in range(2000)]
    body = json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}, separators=(",", ":")).encode()
    parser = ListParser(PodObject)
    told, most_held = 0, 0
    for start in range(0, len(body), 65536):
        told += len(parser.feed(body[start : start + 65536]))
        most_held = max(most_held, parser._size)
    assert told > 1500
    assert most_held < 3 * wire._SLICE_BYTES
    assert told + len(parser.finish()) == 2000


@pytest.mark.parametrize("is_long", [False, True])
def test_one_broken_object_does_not_cost_its_neighbours(is_long):
    broken = item("bad")
    broken["spec"]["priority"] = "high"
    items = [item("a"), broken, item("b"), {"metadata": {"name": 7, "namespace": None}}, "text", item("c")]
    if is_long:
        items += [item(f"p{i}", "x" * 500) for i in range(50)]
    body = json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}, separators=(",", ":")).encode()
    parser, objects = parse(body, range(0, len(body), 100), slice_bytes=1000 if is_long else 10**6)
    assert [o.metadata.name for o in objects][:3] == ["a", "b", "c"]
    assert len(objects) == (53 if is_long else 3)
    assert [u.key for u in parser.unreadable] == ["ns/bad", "None/7", "?"]
    assert "priority" in parser.unreadable[0].error


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"metadata":{},"items":[',
        b'{"metadata":{},"items":[{}',
        b'{"items":[]}',
        b"\xff" * 9,
    ],
)
def test_what_is_no_list_is_refused(body):
    with pytest.raises(DecodeError):
        parse(body)


@pytest.mark.parametrize("items", ["[]", "null"])
def test_an_empty_list(items):
    parser, objects = parse(f'{{"metadata":{{"resourceVersion":"5"}},"items":{items}}}'.encode())
    assert objects == []
    assert parser.meta.resource_version == "5"


def test_deep_nesting_is_named_and_skipped():
    deep = b'{"metadata":{"name":"deep"},"spec":{"affinity":' + b'{"a":' * 100000 + b"1" + b"}" * 100000 + b"}}"
    body = b'{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"a"}},' + deep + b"]}"
    try:
        parser, objects = parse(body, slice_bytes=10**7)
    except DecodeError:
        return  # refusing the whole list is the most that such a body may cost
    assert objects[0].metadata.name == "a"
    assert len(objects) + len(parser.unreadable) == 2


def line(kind: str, obj) -> bytes:
    return json.dumps({"type": kind, "object": obj}, separators=(",", ":")).encode() + b"\n"


EVENTS = st.lists(st.tuples(st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]), EXTRA), max_size=12)


@given(events=EVENTS, at=st.lists(st.integers(0, 5000), max_size=20))
def test_events_are_the_same_however_they_are_cut(events, at):
    body = b"".join(line(kind, item(f"p{i}", extra)) for i, (kind, extra) in enumerate(events))
    parser = EventParser(PodObject)
    found = [event for chunk in cut(body, at) for event in parser.feed(chunk)]
    kinds = {"ADDED": Upserted, "MODIFIED": Upserted, "DELETED": Deleted, "BOOKMARK": Bookmark}
    assert [type(event) for event in found] == [kinds[kind] for kind, _ in events]
    assert [event.object.metadata.name for event in found] == [f"p{i}" for i in range(len(events))]


@given(junk=st.binary(max_size=60))
def test_no_line_ends_the_watch(junk):
    parser = EventParser(PodObject)
    found = list(parser.feed(junk + b"\n" + line("ADDED", item("a"))))
    assert isinstance(found[-1], Upserted)
    assert found[-1].object.metadata.name == "a"
    assert all(isinstance(event, Unreadable) for event in found[:-1])


def test_what_cannot_be_read_is_named():
    broken = item("bad")
    broken["spec"]["containers"] = "none"
    (event,) = EventParser(PodObject).feed(line("MODIFIED", broken))
    assert isinstance(event, Unreadable)
    assert (event.namespace, event.name, event.uid) == ("ns", "bad", "uid-bad")
    assert "containers" in event.error


def test_a_deletion_needs_no_readable_content():
    broken = item("bad")
    broken["spec"]["containers"] = "none"
    (event,) = EventParser(PodObject).feed(line("DELETED", broken))
    assert isinstance(event, Deleted)
    assert event.object.metadata == PodMetaObject(namespace="ns", name="bad", uid="uid-bad")


def test_an_unknown_kind_of_event_is_skipped():
    (event,) = EventParser(PodObject).feed(line("RENAMED", item("a")))
    assert isinstance(event, Unreadable)


def test_an_error_event_carries_its_status():
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    (event,) = EventParser(PodObject).feed(line("ERROR", status))
    assert isinstance(event, Failed)
    assert (event.object.code, event.object.reason) == (410, "Expired")


def test_a_line_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(wire, "_LONGEST_LINE", 1000)
    parser = EventParser(PodObject)
    for _ in range(10):
        assert not list(parser.feed(b"x" * 100))
    with pytest.raises(DecodeError, match="more than 1000"):
        list(parser.feed(b"x"))


def test_a_type_that_demands_more_cannot_be_bare():
    class Strict(msgspec.Struct):
        metadata: MetaObject
        spec: int

    with pytest.raises(DecodeError):
        EventParser(Strict).bare("ns", "a", "u")
