"""What a claim asks of a device: its selectors in CEL, and amounts of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binpack.dra.amounts import consumed
from binpack.dra.selectors import Selectors, Trouble
from binpack.dra.versions import compare, parse
from fleet.dra import (
    Capacity,
    RequestPolicy,
    Version,
)
from tests.support.devices import (
    DRIVER,
    a_device,
)

GIB = 2**30


# -- selectors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "verdict"),
    [
        ('device.driver == "dev.example.com"', True),
        ('device.attributes["dev.example.com"].model == "A100"', True),
        ('device.attributes["dev.example.com"].model.startsWith("H")', False),
        ('device.attributes["dev.example.com"].index < 4', True),
        ('device.attributes["dev.example.com"].fast', True),
        ('device.attributes["other.com"].rack == "r1"', True),
        ('device.capacity["dev.example.com"].memory.compareTo(quantity("40Gi")) >= 0', True),
        ('device.capacity["dev.example.com"].memory.isLessThan(quantity("80Gi"))', False),
        ('device.capacity["dev.example.com"].memory == quantity("81920Mi")', True),
        ('device.capacity["dev.example.com"].memory.sub(quantity("1Gi")).asInteger() == 84825604096', True),
        ('device.attributes["dev.example.com"].version.isGreaterThan(semver("1.2.9"))', True),
        ('device.attributes["dev.example.com"].version.major() == 1', True),
        ('isSemver("1.0.0-rc.1") && !isSemver("01.0.0") && isQuantity("1Gi") && !isQuantity("1Xi")', True),
        ('"absent" in device.attributes["dev.example.com"]', False),
        ('"absent" in device.attributes["nowhere.com"]', False),
        ('has(device.attributes["nowhere.com"].x)', False),
        ('device.attributes["dev.example.com"].?absent.orValue("x") == "x"', True),
        ('cel.bind(own, device.attributes["dev.example.com"], own.model == "A100" && own.index == 3)', True),
        ("device.allowMultipleAllocations", False),
        ('["A100", "H100"].exists(m, m == device.attributes["dev.example.com"].model)', True),
        ('device.attributes["dev.example.com"].model.lowerAscii() == "a100"', True),
    ],
)
def test_a_selector_is_judged_as_kubernetes_judges_it(expression, verdict) -> None:
    attributes = {"model": "A100", "index": 3, "fast": True, "version": Version(text="1.3.0")}
    device = a_device("d", attributes, capacity={"memory": 80 * GIB})
    device = replace(device, attributes={**device.attributes, "other.com/rack": "r1"})
    selectors = Selectors()
    assert selectors.judge(expression, DRIVER, device) is verdict
    assert selectors.judge(expression, DRIVER, device) is verdict


def test_devices_alike_in_what_is_read_are_judged_once_and_others_apart() -> None:
    selectors = Selectors()
    expression = 'device.attributes["dev.example.com"].size == 1'
    for value, verdict in ((1, True), (2, False), (True, False), (1, True)):
        assert selectors.judge(expression, DRIVER, a_device("d", {"size": value, "uuid": f"{value}"})) is verdict


@pytest.mark.parametrize(
    ("expression", "is_unmodelled"),
    [
        ("sets.contains([1], [1])", True),
        ("device.(", True),
        ('device.attributes["dev.example.com"].absent == 1', False),
        ("1 + 1", False),
        ('device.capacity["dev.example.com"].memory.compareTo(quantity("nonsense")) > 0', False),
    ],
)
def test_an_expression_that_cannot_be_judged_says_so(expression, is_unmodelled) -> None:
    found = Selectors().judge(expression, DRIVER, a_device("d", capacity={"memory": 1}))
    assert isinstance(found, Trouble)
    assert found.is_unmodelled is is_unmodelled


def test_versions_are_ordered_as_the_standard_says() -> None:
    texts = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11"]
    texts += ["1.0.0-rc.1", "1.0.0", "1.0.1", "1.2.0", "2.0.0"]
    versions = [parse(text) for text in texts]
    for place, version in enumerate(versions):
        assert [compare(version, other) for other in versions] == [
            (place > other) - (place < other) for other in range(len(versions))
        ]


# -- amounts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "wanted", "amount"),
    [
        (None, None, 10),
        (None, 3, 3),
        (None, 11, None),
        (RequestPolicy(default=2), None, 2),
        (RequestPolicy(default=1, least=2, step=3), 1, 2),
        (RequestPolicy(default=1, least=2, step=3), 3, 5),
        (RequestPolicy(default=1, least=2, step=3, most=4), 3, None),
        (RequestPolicy(default=2, least=2, most=4), 4, 4),
        (RequestPolicy(default=1, valid_values=(1, 4, 8)), 2, 4),
        (RequestPolicy(default=1, valid_values=(1, 4)), 5, None),
    ],
)
def test_an_amount_is_rounded_up_to_what_the_policy_allows(policy, wanted, amount) -> None:
    device = a_device("d", capacity={"memory": Capacity(value=10, policy=policy)})
    found = consumed(device, (("memory", wanted),) if wanted is not None else ())
    assert found == (None if amount is None else {"memory": amount})


def test_what_a_device_does_not_have_cannot_be_asked_of_it() -> None:
    assert consumed(a_device("d"), (("memory", 1),)) is None
