"""CEL selectors of requests and device classes, judged on devices: the only code that knows a CEL library.

The language is that of the CEL project's own evaluator with its `cel.bind`, optional and string extensions; added here
are Kubernetes' quantities and semantic versions. What Kubernetes has beyond that (sets, lists, `find` of expressions,
addresses) does not compile, and its pods are left to kube-scheduler. So is what would cost too much: everybody else
waits meanwhile. Source: Kubernetes, "Common Expression Language", and DeviceSelector of resource.k8s.io/v1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

from binpack.dra.effort import too_much
from binpack.dra.versions import compare, parse
from fleet import quantity
from fleet.dra import PoolDevice, Version
from fleet.errors import QuantityError

# Of a map with a name that is missing, Kubernetes returns an empty one.
_DOMAINS: Final = re.compile(r"""\.\s*(?:attributes|capacity)\s*\[\s*(?:"([^"]+)"|'([^']+)')\s*\]""")
_READS: Final = re.compile(
    r"""\bdevice\.(attributes|capacity)\[["']([^"']+)["']\]\.([A-Za-z_][A-Za-z0-9_]*)(?!\s*\()"""
)
_MENTIONS: Final = re.compile(r"\b(?:attributes|capacity)\b")
_DEVICE: Final = re.compile(r"\bdevice\b")
_PLAIN_DEVICE: Final = re.compile(r"\bdevice\.(?:driver|allowMultipleAllocations|attributes|capacity)\b")
_MOST_VERDICTS: Final = 65_536
_MOST_PROGRAMS: Final = 4096
# An expression may take this long for each device, and this long in all before anybody asks how long that is.
_LONGEST_EACH_S: Final = 0.001
_UNASKED_S: Final = 2.0
_LONGEST_TEXT: Final = 160
_NANO: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why nobody can say whether a device matches.

    Attributes:
        is_unmodelled: The expression uses what this evaluator does not have; False = it fails on this device.
    """

    text: str
    is_unmodelled: bool


@dataclass(frozen=True, slots=True)
class _Program:
    """A compiled expression.

    Attributes:
        domains: Domains that it names: an empty map stands for those that a device lacks.
        reads: All it reads of a device beside driver and sharing, as ("attributes" or "capacity", domain, name); None =
            that cannot be told from its text.
    """

    compiled: Any
    domains: frozenset[str]
    reads: tuple[tuple[str, str, str], ...] | None


@dataclass(slots=True)
class _Spent:
    """What the evaluations of one expression took so far."""

    seconds: float = 0.0
    times: int = 0

    @property
    def is_too_much(self) -> bool:
        return self.seconds > _UNASKED_S and self.seconds > self.times * _LONGEST_EACH_S


class Selectors:
    """Compiles each expression once, and judges devices once that are alike in what the expression reads.

    Args:
        cpu_s: Returns seconds of CPU spent so far, by which slow expressions are given up; None = nobody counts.
    """

    def __init__(self, cpu_s: Callable[[], float] | None = None) -> None:
        self._cpu_s = cpu_s
        self._env: Any = None  # made for the first expression: most clusters never have one
        self._programs: dict[str, _Program | Trouble] = {}
        self._verdicts: dict[tuple[object, ...], bool | Trouble] = {}
        self._spent: dict[str, _Spent] = {}

    def judge(self, expression: str, driver: str, device: PoolDevice) -> bool | Trouble:
        """Return whether the device matches, or why nobody can say."""
        program = self._program(expression)
        if isinstance(program, Trouble):
            return program
        if program.reads is None:
            return self._evaluated(program, expression, driver, device)
        key = (expression, driver, device.is_multiple, *(_read(device, driver, *one) for one in program.reads))
        known = self._verdicts.get(key)
        if known is None:
            if len(self._verdicts) >= _MOST_VERDICTS:
                self._verdicts.clear()
            known = self._verdicts[key] = self._evaluated(program, expression, driver, device)
        return known

    def _evaluated(self, program: _Program, expression: str, driver: str, device: PoolDevice) -> bool | Trouble:
        if self._cpu_s is None:
            return _judged(program, expression, driver, device)
        began_s = self._cpu_s()
        verdict = _judged(program, expression, driver, device)
        spent = self._spent.setdefault(expression, _Spent())
        spent.seconds += self._cpu_s() - began_s
        spent.times += 1
        if spent.is_too_much:
            each_ms = 1000 * spent.seconds / spent.times
            text = f"selector {_short(expression)} takes {each_ms:.1f} ms for each device"
            self._programs[expression] = Trouble(text=text, is_unmodelled=True)
        return verdict

    def _program(self, expression: str) -> _Program | Trouble:
        known = self._programs.get(expression)
        if known is None:
            if len(self._programs) >= _MOST_PROGRAMS:
                self._programs.clear()
                self._spent.clear()
            known = self._programs[expression] = self._compiled(expression)
        return known

    def _compiled(self, expression: str) -> _Program | Trouble:
        costly = too_much(expression)
        if costly:
            return Trouble(text=f"selector {_short(expression)} is not evaluated: {costly}", is_unmodelled=True)
        if self._env is None:
            self._env = _environment()
        try:
            domains = frozenset(first or second for first, second in _DOMAINS.findall(expression))
            return _Program(self._env.compile(expression), domains, _reads(expression))
        except Exception as error:
            # Broad on purpose: the library names no type for expressions that it cannot compile.
            text = f"selector {_short(expression)} cannot be evaluated: {_short(str(error))}"
            return Trouble(text=text, is_unmodelled=True)


def _judged(program: _Program, expression: str, driver: str, device: PoolDevice) -> bool | Trouble:
    facts = _facts(driver, device, program.domains)
    try:
        value = program.compiled.eval(data={"device": facts}).plain_value()
    except Exception as error:
        # Broad on purpose: what the evaluator gives up (its budget of iterations, say) it raises as it likes.
        text = f"selector {_short(expression)} cannot be evaluated: {_short(str(error))}"
        return Trouble(text=text, is_unmodelled=True)
    if isinstance(value, bool):
        return value
    text = f"{_short(expression)} fails on {driver}/{device.name}: {_short(str(value))}"
    return Trouble(text=text, is_unmodelled=False)


def _reads(expression: str) -> tuple[tuple[str, str, str], ...] | None:
    """Return what the expression reads where every mention of a map is `device.map["domain"].name`, else None."""
    found = _READS.findall(expression)
    if len(found) != len(_MENTIONS.findall(expression)) or len(_DEVICE.findall(expression)) != len(
        _PLAIN_DEVICE.findall(expression)
    ):
        return None
    return tuple(sorted({(kind, domain, name) for kind, domain, name in found}))


def _read(device: PoolDevice, driver: str, kind: str, domain: str, name: str) -> object:
    """Return one attribute or capacity, None where the device lacks it; True and 1 are told apart."""
    if kind == "attributes":
        value = device.attributes.get(f"{domain}/{name}")
        return (type(value), value)
    one = device.capacity.get(f"{domain}/{name}")
    if one is None and domain == driver:
        one = device.capacity.get(name)
    return None if one is None else one.value


def _facts(driver: str, device: PoolDevice, domains: frozenset[str]) -> dict[str, Any]:
    attributes: dict[str, dict[str, Any]] = {domain: {} for domain in domains}
    capacity: dict[str, dict[str, Any]] = {domain: {} for domain in domains}
    for name, value in device.attributes.items():
        domain, _, last = name.rpartition("/")
        attributes.setdefault(domain, {})[last] = _semver(value.text) if isinstance(value, Version) else value
    for name, one in device.capacity.items():
        domain, _, last = name.rpartition("/")
        capacity.setdefault(domain or driver, {})[last] = _quantity(one.value)
    return {
        "driver": driver,
        "allowMultipleAllocations": device.is_multiple,
        "attributes": attributes,
        "capacity": capacity,
    }


# A quantity and a version are lists of two texts: values that the library hands to functions of ours as they are, that
# are equal exactly where what they mean is equal, and that no operator of the language takes by mistake.


def _quantity(nano: int) -> list[str]:
    return ["quantity", str(nano)]


def _semver(text: str) -> list[str]:
    return ["semver", text]


def _amount(value: list[str] | int) -> int:
    if isinstance(value, int):
        return value * _NANO
    if value[0] != "quantity":
        raise ValueError(f"{value[1]} is not a quantity")
    return int(value[1])


def _order(first: list[str], second: list[str]) -> int:
    if first[0] != second[0]:
        raise ValueError(f"a {first[0]} cannot be compared with a {second[0]}")
    if first[0] == "semver":
        return compare(parse(first[1]), parse(second[1]))
    return (_amount(first) > _amount(second)) - (_amount(first) < _amount(second))


def _is_quantity(text: str) -> bool:
    try:
        quantity.nano(text)
    except QuantityError:
        return False
    return True


def _is_semver(text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _environment() -> Any:
    kind, pair = cel.Type, cel.Type.List(cel.Type.STRING)

    def function(name: str, *overloads: tuple[list[Any], bool, Any, Callable[..., Any]]) -> Any:
        return cel.FunctionDecl(
            name,
            [
                cel.Overload(f"{name}_{number}", result, parameters, is_member, work)
                for number, (parameters, is_member, result, work) in enumerate(overloads)
            ],
        )

    return cel.NewEnv(
        variables={"device": kind.Map(kind.STRING, kind.DYN)},
        extensions=[ext_bindings.ExtBindings(), ext_optional.ExtOptional(), ext_strings.ExtStrings()],
        functions=[
            function("quantity", ([kind.STRING], False, pair, lambda text: _quantity(quantity.nano(text)))),
            function("isQuantity", ([kind.STRING], False, kind.BOOL, _is_quantity)),
            function("semver", ([kind.STRING], False, pair, lambda text: _semver(parse(text).text))),
            function("isSemver", ([kind.STRING], False, kind.BOOL, _is_semver)),
            function("compareTo", ([pair, pair], True, kind.INT, _order)),
            function("isGreaterThan", ([pair, pair], True, kind.BOOL, lambda a, b: _order(a, b) > 0)),
            function("isLessThan", ([pair, pair], True, kind.BOOL, lambda a, b: _order(a, b) < 0)),
            function("sign", ([pair], True, kind.INT, lambda a: (_amount(a) > 0) - (_amount(a) < 0))),
            function("isInteger", ([pair], True, kind.BOOL, lambda a: _amount(a) % _NANO == 0)),
            function("asInteger", ([pair], True, kind.INT, lambda a: _amount(a) // _NANO)),
            function("asApproximateFloat", ([pair], True, kind.DOUBLE, lambda a: _amount(a) / _NANO)),
            function(
                "add",
                ([pair, pair], True, pair, lambda a, b: _quantity(_amount(a) + _amount(b))),
                ([pair, kind.INT], True, pair, lambda a, b: _quantity(_amount(a) + _amount(b))),
            ),
            function(
                "sub",
                ([pair, pair], True, pair, lambda a, b: _quantity(_amount(a) - _amount(b))),
                ([pair, kind.INT], True, pair, lambda a, b: _quantity(_amount(a) - _amount(b))),
            ),
            function("major", ([pair], True, kind.INT, lambda a: parse(a[1]).numbers[0])),
            function("minor", ([pair], True, kind.INT, lambda a: parse(a[1]).numbers[1])),
            function("patch", ([pair], True, kind.INT, lambda a: parse(a[1]).numbers[2])),
        ],
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…"
