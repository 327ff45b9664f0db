from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.errors import QuantityError
from fleet.quantity import milli, milli_text, units, whole


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("500m", 500),
        ("1", 1000),
        ("1e3", 1_000_000),
        ("1E3", 1_000_000),
        ("1.5Gi", 1_610_612_736_000),
        ("100k", 100_000_000),
        ("0.1", 100),
        (".5", 500),
        ("5.", 5000),
        ("+2", 2000),
        ("1n", 1),
        ("1u", 1),
        ("1001u", 2),
        ("1e-4", 1),
        ("0", 0),
        ("1Ei", 2**60 * 1000),
        ("1E", 10**18 * 1000),
    ],
)
def test_milli_reads_as_kubernetes_does_and_rounds_up(text: str, amount: int) -> None:
    assert milli(text) == amount


@pytest.mark.parametrize(
    ("text", "amount"), [("1Gi", 2**30), ("128974848", 128974848), ("129M", 129_000_000), ("1500m", 2), ("1Ki", 1024)]
)
def test_units_round_up(text: str, amount: int) -> None:
    assert units(text) == amount


@pytest.mark.parametrize(("text", "amount"), [("8", 8), ("1k", 1000), ("1e3", 1000), ("4000m", 4), ("16Gi", 2**34)])
def test_whole_reads_whole_pieces(text: str, amount: int) -> None:
    assert whole(text) == amount


@pytest.mark.parametrize("text", ["0.5", "1500m", "1n", "0.1k1"])
def test_whole_refuses_fractions(text: str) -> None:
    with pytest.raises(QuantityError):
        whole(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1 Gi",
        "1gi",
        "1K",
        "1mi",
        "Gi",
        "1..5",
        "1e",
        "1e3k",
        "0x10",
        "１",
        "nan",
        "inf",
        "1_000",
        "1,5",
        "--1",
        "1\n",
    ],
)
def test_other_text_is_refused_by_name(text: str) -> None:
    for read in (milli, units, whole):
        with pytest.raises(QuantityError, match="is not a Kubernetes quantity"):
            read(text)


def test_negative_amounts_and_endless_texts_are_refused() -> None:
    for text in ("-5", "-1Gi", "-0.5"):
        with pytest.raises(QuantityError, match="is negative"):
            milli(text)
    for text in ("1" * 10_000, "1e99999"):
        with pytest.raises(QuantityError):
            units(text)


@given(st.decimals(min_value=0, max_value=10**15, places=6))
def test_milli_is_the_smallest_that_covers_the_exact_amount(number: object) -> None:
    text = format(number, "f")  # type: ignore[call-overload]
    exact = Fraction(text) * 1000
    assert exact <= milli(text) < exact + 1


@given(st.integers(min_value=0, max_value=2**60))
def test_text_reads_back(amount: int) -> None:
    assert milli(milli_text(amount)) == amount
