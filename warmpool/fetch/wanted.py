"""What a person or a file asks for. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urldefrag, urlsplit

import yaml

from warmpool.fetch.errors import Refused
from warmpool.fetch.names import file_name, shown

SCHEMES = frozenset({"http", "https", "s3", "file"})
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_KEYS = frozenset({"url", "sha256", "path"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One file.

    Attributes:
        url: http, https, s3 or file; an s3 address that ends with a slash stands for all objects under it.
        name: Where it goes, below the folder; empty for all objects under a prefix, which bring their own.
        sha256: 64 lower-case hex digits, None where nobody knows.
    """

    url: str
    name: str
    sha256: str | None = None

    @property
    def is_prefix(self) -> bool:
        """Return whether it stands for many objects."""
        return self.url.startswith("s3://") and self.url.endswith("/")


def item(url: str, *, name: str | None = None, sha256: str | None = None) -> Item:
    """Return one wish; the checksum may also stand behind the address, as `#sha256=...`.

    Raises:
        Refused: Address or checksum cannot be read.
    """
    address, fragment = urldefrag(url)
    if fragment.startswith("sha256="):
        if sha256 is not None and sha256.lower() != fragment.removeprefix("sha256=").lower():
            raise Refused(f"{shown(url)}: two checksums that differ")
        sha256 = fragment.removeprefix("sha256=")
    elif fragment:
        raise Refused(f"{shown(url)}: only #sha256=... may stand behind an address")
    sha256 = sha256.lower() if sha256 is not None else None
    if sha256 is not None and not _SHA256.match(sha256):
        raise Refused(f"{shown(url)}: a sha256 is 64 hex digits, not {sha256[:80]!r}")
    try:
        scheme = urlsplit(address).scheme
    except ValueError as error:
        raise Refused(f"{url!r}: not an address") from error
    if scheme not in SCHEMES:
        raise Refused(f"{shown(url)}: not one of {', '.join(sorted(SCHEMES))}")
    found = Item(url=address, name="", sha256=sha256)
    if found.is_prefix:
        if sha256 is not None or name is not None:
            raise Refused(f"{shown(url)}: many objects have neither one name nor one checksum")
        return found
    return Item(url=address, name=name if name is not None else file_name(address), sha256=sha256)


def listed(text: str, place: str) -> tuple[Item, ...]:
    """Return the wishes of a YAML or JSON list of {url, sha256, path}.

    Raises:
        Refused: With every problem found.
    """
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise Refused(f"{place}: neither YAML nor JSON: {error}") from error
    if not isinstance(document, list) or not document:
        raise Refused(f"{place}: not a list of files, each with url, and optionally sha256 and path")
    found: list[Item] = []
    problems: list[str] = []
    for number, entry in enumerate(document, 1):
        try:
            found.append(_entry(entry))
        except Refused as error:
            problems.append(f"entry {number}: {error}")
    if problems:
        raise Refused(f"{place}: " + "; ".join(problems))
    check_names(found)
    return tuple(found)


def _entry(entry: Any) -> Item:
    if not isinstance(entry, dict) or not isinstance(entry.get("url"), str):
        raise Refused("has no url")
    unknown = sorted(str(key) for key in entry.keys() - _KEYS)
    if unknown:
        raise Refused(f"has {', '.join(unknown)}, which is not known")
    for key in ("sha256", "path"):
        if entry.get(key) is not None and not isinstance(entry[key], str):
            raise Refused(f"its {key} is not a text; quote it")
    return item(entry["url"], name=entry.get("path"), sha256=entry.get("sha256"))


def check_names(items: Sequence[Item]) -> None:
    """Refuse two files of one name.

    Raises:
        Refused: There are such.
    """
    names = [item.name for item in items if item.name]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Refused(f"more than one file would be named {', '.join(twice)}")
