"""`--set behavior.mode=thrifty`: other settings for a replay, written as in the custom resource. Pure."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from fleet.errors import DecodeError

# What a replay can differ in: everything of the policy; not where the load is measured, nor what is scaled.
SETTINGS: Final[dict[str, str]] = {
    "minReplicas": "whole number",
    "maxReplicas": "whole number",
    "targetConcurrency.initial": "number",
    "targetConcurrency.min": "number",
    "targetConcurrency.max": "number",
    "targetConcurrency.learn": "true or false",
    "targetConcurrency.limit": "number",
    "slo.queueWaitSeconds": "number",
    "slo.latencySeconds": "number",
    "slo.errorRatio": "number",
    "behavior.mode": "steady or thrifty",
    "behavior.periodSeconds": "number",
    "behavior.scaleUp.lookBackSeconds": "number",
    "behavior.scaleUp.maxRatio": "number",
    "behavior.scaleUp.maxReplicas": "whole number",
    "behavior.scaleDown.lookBackSeconds": "number",
    "behavior.scaleDown.maxRatio": "number",
    "behavior.toZeroAfterSeconds": "number",
    "behavior.startTimeSeconds": "number",
}
_SHORT: Final = ("target.", "targetConcurrency.")


def changed(spec: Mapping[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """Return the spec with these changes; whether it holds together is `policy_of`'s to say.

    Args:
        spec: Of the custom resource.
        changes: NAME=VALUE each; `target.` may stand for `targetConcurrency.`.

    Raises:
        DecodeError: A name is unknown, or a value is not of its kind; the message lists what is possible.
    """
    answer = copy.deepcopy(dict(spec))
    for change in changes:
        name, has_value, text = change.partition("=")
        path = _path(name.strip())
        if not has_value:
            raise DecodeError(f"--set {change}: a value is missing, as in --set {path}={_example(path)}")
        part = answer
        *parents, last = path.split(".")
        for parent in parents:
            part = part.setdefault(parent, {})
        part[last] = _value(path, text.strip())
    return answer


def _path(name: str) -> str:
    path = name.replace(*_SHORT, 1) if name.startswith(_SHORT[0]) else name
    if path in SETTINGS:
        return path
    near = difflib.get_close_matches(path, SETTINGS, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise DecodeError(f"there is no setting {name!r}; {hint}possible are: {', '.join(SETTINGS)}")


def _value(path: str, text: str) -> object:
    kind = SETTINGS[path]
    try:
        if kind == "whole number":
            return int(text)
        if kind == "number":
            return float(text)
    except ValueError:
        raise DecodeError(f"--set {path}={text}: must be a {kind}") from None
    if kind == "true or false":
        if text.lower() not in {"true", "false"}:
            raise DecodeError(f"--set {path}={text}: must be {kind}")
        return text.lower() == "true"
    return text


def _example(path: str) -> str:
    return {"whole number": "10", "number": "2.5", "true or false": "true"}.get(SETTINGS[path], "thrifty")
