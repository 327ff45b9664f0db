"""What a run has done so far, for whoever shows it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class FileMeter:
    """One file.

    Attributes:
        name: As people know it.
        size_bytes: None where unknown.
        done_bytes: On disk, those of earlier tries included.
        kept_bytes: Of them, from earlier tries.
        checked_bytes: As far as its checksum has got.
        state: Waiting, asking, fetching, checking, done, failed.
        source: Where it comes from now.
        retries: Requests that had to be repeated.
    """

    name: str
    size_bytes: int | None = None
    done_bytes: int = 0
    kept_bytes: int = 0
    checked_bytes: int = 0
    state: str = "waiting"
    source: str = ""
    retries: int = 0


@dataclass(slots=True, kw_only=True)
class Meter:
    """All files of a run.

    Attributes:
        files: In the order they were begun.
        received_bytes: From sources in this run, wasted ones included.
    """

    files: list[FileMeter] = field(default_factory=list)
    received_bytes: int = 0

    def file(self, name: str, size_bytes: int | None = None) -> FileMeter:
        """Add a file."""
        made = FileMeter(name=name, size_bytes=size_bytes)
        self.files.append(made)
        return made
