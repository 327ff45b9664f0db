"""Annotation text of berths: what is written is read back, and nothing is guessed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.berths import format_candidates, format_devices, parse_candidates, parse_devices
from fleet.dra import Allocation, ClaimChoice
from fleet.errors import DecodeError
from fleet.pod import Berth

DEVICES = st.lists(st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.:/-]{0,20}[A-Za-z0-9])?", fullmatch=True), unique=True)
NODES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)


@given(devices=DEVICES.filter(bool))
def test_devices_read_back_in_their_order(devices):
    assert parse_devices(format_devices(devices)) == tuple(devices)


@given(berths=st.lists(st.builds(lambda n, d: Berth(node=n, devices=tuple(d)), NODES, DEVICES), min_size=1))
def test_candidates_read_back_in_their_order(berths):
    berths = list({berth.node: berth for berth in berths}.values())
    assert parse_candidates(format_candidates(berths)) == tuple(berths)


@given(text=st.text())
def test_any_text_is_read_or_refused(text):
    for parse, write in ((parse_devices, format_devices), (parse_candidates, format_candidates)):
        try:
            value = parse(text)
        except DecodeError:
            continue
        assert write(value) == text


@pytest.mark.parametrize(
    "text", ["", ",", "0,", ",0", "0,,3", "0, 3", " 0", "0\n", "0,0", "-1", "GPU_", "ü", "٣", "0;1", "a" * 254]
)
def test_odd_devices_are_refused(text):
    with pytest.raises(DecodeError, match="devices"):
        parse_devices(text)


@pytest.mark.parametrize(
    "text", ["", ";", "a;", "a=", "a=0;a=1", "a;a", "A=0", "a=0;;b", "=0", "a =0", "a= 0", "a=0=1", "a\n", "a=0,0"]
)
def test_odd_candidates_are_refused(text):
    with pytest.raises(DecodeError):
        parse_candidates(text)


def test_what_could_not_be_read_back_is_not_written():
    with pytest.raises(DecodeError):
        format_devices([])
    with pytest.raises(DecodeError):
        format_devices(["0,1"])
    with pytest.raises(DecodeError):
        format_candidates([])
    with pytest.raises(DecodeError):
        format_candidates([Berth(node="a;b")])
    with pytest.raises(DecodeError):
        format_candidates([Berth(node="a=0")])


def test_known_forms():
    assert parse_devices("0,3") == ("0", "3")
    assert parse_candidates("n1=0,3;n2") == (Berth(node="n1", devices=("0", "3")), Berth(node="n2"))
    gpu = "GPU-5a1b2c3d-0000-1111-2222-333344445555"
    assert parse_candidates(f"n.example={gpu}") == (Berth(node="n.example", devices=(gpu,)),)


def test_devices_of_resource_claims_are_no_part_of_the_text():
    choice = ClaimChoice(claim_uid="c", allocation=Allocation())
    assert format_candidates([Berth(node="n1", choices=(choice,)), Berth(node="n2", devices=("0",))]) == "n1;n2=0"
