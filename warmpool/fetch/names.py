"""Where a file may go, and how an address may be shown. Pure."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit, urlunsplit

from warmpool.fetch.errors import Refused

PART_SUFFIX = ".berthmaster-part"
JOURNAL_SUFFIX = ".berthmaster-journal"
_LONGEST_PART = 255 - max(len(PART_SUFFIX), len(JOURNAL_SUFFIX)) - len(".new")


def inside(folder: Path, name: str) -> Path:
    """Return the path of a name from outside under the folder.

    Raises:
        Refused: The name is empty, absolute, leads out of the folder, through a link out of it, or cannot be a name.
    """
    parts = PurePosixPath(name).parts
    is_bad = not parts or name.startswith("/") or name.endswith("/") or "\\" in name
    for part in parts:
        is_bad |= part in {"..", "/"} or not part.isprintable() or len(part.encode()) > _LONGEST_PART
        is_bad |= part.endswith((PART_SUFFIX, JOURNAL_SUFFIX))
    if is_bad:
        raise Refused(f"{name!r} cannot be the name of a file under {folder}")
    path = folder.joinpath(*parts)
    if not path.parent.resolve().is_relative_to(folder.resolve()):
        raise Refused(f"{name!r} leads out of {folder} through a link")
    return path


def file_name(url: str) -> str:
    """Return the last part of an address's path.

    Raises:
        Refused: It has none.
    """
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    if not name:
        raise Refused(f"{shown(url)}: names no file; give a name")
    return name


def shown(url: str) -> str:
    """Return the address as a log may have it: without user, password, query and fragment, where secrets stand."""
    try:
        split = urlsplit(url)
        host = split.hostname or ""
        host = f"[{host}]" if ":" in host else host
        place = host if split.port is None else f"{host}:{split.port}"
    except ValueError:
        return "an address that cannot be read"
    return urlunsplit((split.scheme, place, split.path, "…" if split.query else "", ""))
