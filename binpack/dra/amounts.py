"""How much of a device's capacity one claim uses. Source: KEP-5075, consumable capacity."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.dra import Capacity, PoolDevice, RequestPolicy


def consumed(device: PoolDevice, wanted: tuple[tuple[str, int], ...]) -> dict[str, int] | None:
    """Return what a request uses of each capacity of the device, None where it asks for what the device never gives.

    What is not asked for counts with the policy's default, or else whole. Amounts are rounded up to what the policy
    allows.

    Args:
        device: It need not be one that several claims may share.
        wanted: (name as published, amount) of the request.
    """
    asked = dict(wanted)
    if any(name not in device.capacity for name in asked):
        return None
    found: dict[str, int] = {}
    for name, capacity in device.capacity.items():
        amount = _rounded(asked.get(name), capacity)
        if amount > capacity.value or not _allowed(amount, capacity.policy):
            return None
        found[name] = amount
    return found


def fits(device: PoolDevice, used: Mapping[str, int], more: Mapping[str, int]) -> bool:
    """Return True if the device still has all of `more` beside what is `used`."""
    return all(used.get(name, 0) + amount <= device.capacity[name].value for name, amount in more.items())


def _rounded(asked: int | None, capacity: Capacity) -> int:
    policy = capacity.policy
    if asked is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return asked
    if policy.least is not None:
        if asked < policy.least:
            return policy.least
        if policy.step:
            return policy.least + -(-(asked - policy.least) // policy.step) * policy.step
        return asked
    return next((value for value in policy.valid_values if asked <= value), asked)


def _allowed(amount: int, policy: RequestPolicy | None) -> bool:
    if policy is None or amount == policy.default:
        return True
    if policy.least is not None:
        if policy.most is not None and amount > policy.most:
            return False
        return not policy.step or (amount - policy.least) % policy.step == 0
    return not policy.valid_values or amount in policy.valid_values
