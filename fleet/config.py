"""Settings from flags and environment into one frozen dataclass, with every problem told at once.

A setting `hand_over_after_s` is read from the variable PREFIX_HAND_OVER_AFTER_S; a dataclass inside a dataclass puts
its own name between: `batch.idle_s` is PREFIX_BATCH_IDLE_S. A flag wins over the environment, which wins over the
default. A variable with the prefix that names no setting is a problem too: it is a slip of the pen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Protocol, TypeVar, get_type_hints, runtime_checkable

from fleet.errors import ConfigError

T = TypeVar("T")

_YES_NO = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}


@runtime_checkable
class Checked(Protocol):
    """Settings that can say what is wrong with them as a whole."""

    def problems(self) -> list[str]:
        """Return every problem, naming setting, bound and value."""
        ...


def read(
    kind: type[T],
    *,
    prefix: str,
    environment: Mapping[str, str],
    flags: Mapping[str, Any] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> T:
    """Return the settings.

    Args:
        kind: A dataclass of str, int, float, bool and such dataclasses; None may stand beside a type.
        prefix: Of the variables, without the underscore that follows it.
        environment: Variables; those without the prefix are ignored.
        flags: Values by dotted setting name; None = not given.
        renamed: By the dotted name that a setting once had what it is called now: whoever uses the old one is told.

    Raises:
        ConfigError: With all problems: unknown names, values that cannot be read, settings that contradict each other.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    known = dict(_leaves(kind))
    variables = {_variable(prefix, name): name for name in known}
    meant = {variable for variable in environment if variable.startswith(f"{prefix}_")}
    unknown = sorted(meant - variables.keys()) + sorted(given.keys() - known.keys())
    now = {
        _variable(prefix, old): f"; it is called {_variable(prefix, new)} now" for old, new in (renamed or {}).items()
    }
    problems = [f"{name}: no such setting{now.get(name, '')}" for name in unknown]
    values: dict[str, Any] = {}
    for variable, name in variables.items():
        source, value = (name, given[name]) if name in given else (variable, environment.get(variable))
        if value is None:
            continue
        try:
            values[name] = _parsed(known[name], value)
        except ValueError as error:
            problems.append(f"{source}: {error}")
    settings = _built(kind, values, problems)
    if settings is not None and isinstance(settings, Checked):
        problems.extend(settings.problems())
    if problems or settings is None:
        raise ConfigError(problems)
    return settings


def host_and_port(text: str) -> tuple[str, int]:
    """Return what HOST:PORT, [IPv6]:PORT or :PORT (every interface) says.

    Raises:
        ConfigError: The text is none of these.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigError([f"{text!r} is not HOST:PORT"])
    return host.strip("[]"), int(port)


def _leaves(kind: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    hints = get_type_hints(kind)
    for field in fields(kind):
        hint = hints[field.name]
        if is_dataclass(hint):
            yield from _leaves(hint, f"{path}{field.name}.")
        else:
            yield f"{path}{field.name}", hint


def _variable(prefix: str, name: str) -> str:
    return f"{prefix}_{name.replace('.', '_').upper()}"


def _parsed(hint: Any, value: Any) -> Any:
    kinds = [kind for kind in getattr(hint, "__args__", (hint,)) if kind is not type(None)]
    if not isinstance(value, str):
        if isinstance(value, bool) != (kinds[0] is bool) or not isinstance(value, (float | int, str)):
            raise ValueError(f"{value!r} is not a {kinds[0].__name__}")
        return kinds[0](value)
    text = value.strip()
    if kinds[0] is bool:
        if text.lower() not in _YES_NO:
            raise ValueError(f"{value!r} is neither true nor false")
        return _YES_NO[text.lower()]
    if kinds[0] in (int, float):
        try:
            number = kinds[0](text)
        except ValueError:
            raise ValueError(f"{value!r} is not {'a whole number' if kinds[0] is int else 'a number'}") from None
        if not math.isfinite(number):
            raise ValueError(f"{value!r} is not a finite number")
        return number
    return text


def _built(
    kind: type[T], values: Mapping[str, Any], problems: list[str], path: str = "", default: T | None = None
) -> T | None:
    """Return the settings under `path`, on top of their default; None where one is missing, which is a problem."""
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    is_complete = True
    for field in fields(kind):  # type: ignore[arg-type]
        name = f"{path}{field.name}"
        fallback = getattr(default, field.name) if default is not None else _default(field)
        if is_dataclass(hints[field.name]):
            inner: Any = hints[field.name]
            given[field.name] = _built(inner, values, problems, f"{name}.", None if fallback is MISSING else fallback)
            is_complete &= given[field.name] is not None
        elif name in values:
            given[field.name] = values[name]
        elif fallback is MISSING:
            problems.append(f"{name}: not set, and there is no default")
            is_complete = False
        else:
            given[field.name] = fallback
    return kind(**given) if is_complete else None


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default
