"""RFC 6902 as the API server applies it: the three operations that we use, on a copy."""

from __future__ import annotations

import copy
import json
from typing import Any


class PatchFailed(Exception):
    """A test did not hold, or a path does not exist: the API answers 422."""


def apply(document: Any, patch: bytes) -> Any:
    """Return the patched document, or raise PatchFailed and change nothing."""
    result = copy.deepcopy(document)
    for operation in json.loads(patch):
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].removeprefix("/").split("/")
        ]
        target = result
        for part in parents:
            target = _child(target, part)
        _OPERATIONS[operation["op"]](target, last, operation.get("value"))
    return result


def _child(target: Any, part: str) -> Any:
    try:
        return target[int(part)] if isinstance(target, list) else target[part]
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise PatchFailed(part) from error


def _test(target: Any, last: str, value: Any) -> None:
    is_absent = isinstance(target, dict) and last not in target
    if not (is_absent and value is None) and (is_absent or _child(target, last) != value):
        raise PatchFailed(f"test of {last}")


def _add(target: Any, last: str, value: Any) -> None:
    if isinstance(target, list):
        target.insert(len(target) if last == "-" else int(last), value)
    elif isinstance(target, dict):
        target[last] = value
    else:
        raise PatchFailed(last)


def _remove(target: Any, last: str, _: Any) -> None:
    _child(target, last)
    del target[int(last) if isinstance(target, list) else last]


_OPERATIONS = {"test": _test, "add": _add, "remove": _remove}
