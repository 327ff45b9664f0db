"""The geometry of cards with MIG against the vendor's numbers of instances, and against a count by hand of slices."""

from __future__ import annotations

from itertools import combinations

import pytest

from binpack import mig
from binpack.check_instances import can_begin
from binpack.mig.cards import CARDS, Card, card_of
from fleet.device import Device, Partition

H100 = Device(id="0", model="NVIDIA-H100-80GB-HBM3", memory_mib=81559, partitions=())
A30 = Device(id="0", model="NVIDIA-A30", memory_mib=24576, partitions=())


@pytest.mark.parametrize(
    ("model", "memory_mib", "largest"),
    [
        ("NVIDIA-A100-SXM4-40GB", 40960, "7g.40gb"),
        ("NVIDIA-A100-SXM4-80GB", 81920, "7g.80gb"),
        ("NVIDIA A100 80GB PCIe", 81920, "7g.80gb"),
        ("NVIDIA-A30", 24576, "4g.24gb"),
        ("NVIDIA-H100-80GB-HBM3", 81559, "7g.80gb"),
        ("NVIDIA-H100-NVL", 95830, "7g.94gb"),
        ("NVIDIA-GH200-480GB", 97871, "7g.96gb"),
        ("NVIDIA-H20", 97871, "7g.96gb"),
        ("NVIDIA-H200", 143771, "7g.141gb"),
        ("NVIDIA-H200-NVL", 143771, "7g.141gb"),
        ("NVIDIA-B200", 183359, "7g.180gb"),
        ("NVIDIA-GB200", 189471, "7g.186gb"),
        ("NVIDIA-B300-SXM6-AC", 275040, "7g.269gb"),
        ("NVIDIA-H100-80GB-HBM3", None, "7g.80gb"),
        ("NVIDIA-B200", None, "7g.180gb"),
    ],
)
def test_a_card_is_known_by_its_name_and_memory(model: str, memory_mib: int | None, largest: str) -> None:
    card = card_of(model, memory_mib)
    assert card is not None
    assert card.profiles[-1].name == largest


@pytest.mark.parametrize(
    ("model", "memory_mib"),
    [
        ("NVIDIA-H100", None),
        ("NVIDIA-L40S", 46068),
        ("", None),
        ("NVIDIA-GH200-144G-HBM3e", 147456),
        ("NVIDIA-H1000", 81559),
    ],
)
def test_nothing_is_guessed_of_other_cards(model: str, memory_mib: int | None) -> None:
    assert card_of(model, memory_mib) is None
    assert mig.geometry_of(Device(id="0", model=model, memory_mib=memory_mib, partitions=())) is None


@pytest.mark.parametrize("card", CARDS, ids=lambda card: f"{card.product}-{card.memory_gb}")
def test_as_many_instances_of_one_profile_fit_as_the_vendor_says(card: Card) -> None:
    """Numbers of instances available: NVIDIA Multi-Instance GPU User Guide, tables of supported profiles."""
    geometry = mig.geometry_of(_empty(card))
    assert geometry is not None
    counts = [_most(geometry, profile.name) for profile in card.profiles]
    assert counts == ([7, 1, 4, 3, 2, 1, 1] if card.slices == 8 else [4, 1, 2, 1, 1])


@pytest.mark.parametrize("card", CARDS, ids=lambda card: f"{card.product}-{card.memory_gb}")
def test_instances_that_share_no_memory_share_no_compute(card: Card) -> None:
    geometry = mig.geometry_of(_empty(card))
    assert geometry is not None
    compute = {profile.name: profile.compute for profile in card.profiles}
    whole = max(compute.values())

    def deepest(busy: int, at: int) -> int:
        return max(
            (
                compute[start.partition.profile] + deepest(busy | start.mask, place + 1)
                for place, start in enumerate(geometry.starts[at:], at)
                if not start.mask & busy
            ),
            default=0,
        )

    assert deepest(0, 0) == whole


@pytest.mark.parametrize("device", [H100, A30], ids=["H100", "A30"])
def test_masks_and_the_verifier_agree_on_what_may_stand_together(device: Device) -> None:
    geometry = mig.geometry_of(device)
    assert geometry is not None
    partitions = [start.partition for start in geometry.starts]
    for many in (1, 2, 3):
        for held in combinations(partitions, many):
            may = all(can_begin(device, held[:i], held[i]) for i in range(many))
            assert (mig.occupied(geometry, held) is not None) is may, held


@pytest.mark.parametrize("device", [H100, A30], ids=["H100", "A30"])
def test_the_tables_find_a_start_where_there_is_one_and_the_one_that_costs_least(device: Device) -> None:
    geometry = mig.geometry_of(device)
    assert geometry is not None
    worth = mig.worth(geometry)
    for profile in {start.partition.profile for start in geometry.starts}:
        choices = mig.choices(geometry, profile)
        for busy in range(1 << geometry.bits):
            free = [start for start in geometry.of(profile) if not start.mask & busy]
            falls = [int(worth[busy] - worth[busy | start.mask]) for start in free]
            place = int(choices.start[busy])
            assert (place >= 0) is bool(free)
            if free:
                assert int(choices.loss[busy]) == min(falls)
                assert geometry.starts[place] == free[falls.index(min(falls))]


def test_what_is_free_is_worth_no_more_when_more_is_taken() -> None:
    geometry = mig.geometry_of(H100)
    assert geometry is not None
    worth = mig.worth(geometry)
    assert worth[0] == 810
    assert worth[-1] == 0
    for busy in range(1 << geometry.bits):
        for bit in range(geometry.bits):
            assert worth[busy | 1 << bit] <= worth[busy]


@pytest.mark.parametrize(
    ("held", "profile", "start"),
    [
        ((), "1g.10gb", 6),  # where nothing but a 3g could have used it
        ((), "2g.20gb", 4),
        ((), "3g.40gb", 4),  # so that 4g.40gb still fits
        ((("1g.10gb", 6),), "1g.10gb", 4),
        ((("1g.10gb", 6),), "1g.20gb", 4),
        ((("3g.40gb", 4),), "1g.10gb", 0),
        ((("3g.40gb", 0),), "4g.40gb", None),
        ((("1g.10gb+me", 6),), "1g.10gb+me", None),
        ((("1g.10gb", 3), ("1g.10gb", 6)), "3g.40gb", None),
    ],
)
def test_an_instance_starts_where_most_stays_open(
    held: tuple[tuple[str, int], ...], profile: str, start: int | None
) -> None:
    geometry = mig.geometry_of(H100)
    assert geometry is not None
    busy = mig.occupied(geometry, [Partition(*one) for one in held])
    assert busy is not None
    place = int(mig.choices(geometry, profile).start[busy])
    assert (geometry.starts[place].partition.start if place >= 0 else None) == start


def test_instances_made_beforehand_are_all_there_is() -> None:
    made = (Partition("3g.40gb", 4), Partition("3g.40gb", 0))
    device = Device(id="0", model="a card nobody knows", partitions=made)
    geometry = mig.geometry_of(device)
    assert geometry is not None
    assert {start.partition for start in mig.fits(geometry, (), "3g.40gb")} == set(made)
    assert mig.fits(geometry, made, "3g.40gb") == ()
    assert mig.fits(geometry, (), "1g.10gb") == ()
    assert mig.occupied(geometry, [Partition("7g.80gb", 0)]) is None
    assert mig.free_slices(geometry, 1) == (1, 2)


def test_more_instances_than_a_card_has_are_not_believed() -> None:
    made = tuple(Partition("1g.5gb", start) for start in range(9))
    assert mig.geometry_of(Device(id="0", partitions=made)) is None


def test_a_device_out_of_mig_mode_has_no_geometry() -> None:
    assert mig.geometry_of(Device(id="0", model=H100.model, memory_mib=H100.memory_mib)) is None


def _empty(card: Card) -> Device:
    return Device(id="0", model=f"NVIDIA-{card.product}", memory_mib=card.memory_gb * 1024, partitions=())


def _most(geometry: mig.Geometry, profile: str) -> int:
    """Return how many instances of one profile fit, by trying all sets of starts."""
    starts = geometry.of(profile)
    fitting = (
        many
        for many in range(len(starts), 0, -1)
        for chosen in combinations(starts, many)
        if mig.occupied(geometry, [one.partition for one in chosen]) is not None
    )
    return next(fitting, 0)
