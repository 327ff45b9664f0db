"""What a run gave, for people and for programs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warmpool.fetch.download import Fetched
from warmpool.fetch.room import amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The files that are there now.

    Attributes:
        seconds: It took.
        image: Name of the image that they belong to, empty for files.
        digest: What the layout's index names.
    """

    files: tuple[Fetched, ...]
    seconds: float
    image: str = ""
    digest: str = ""

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        files = [
            {
                "path": str(file.target),
                "sha256": file.sha256,
                "size_bytes": file.size_bytes,
                "source": file.source or None,
                "received_bytes": file.received_bytes,
                "kept_bytes": file.kept_bytes,
            }
            for file in self.files
        ]
        named = {"image": self.image, "digest": self.digest} if self.image else {}
        return named | {"seconds": round(self.seconds, 3), "files": files}

    def text(self) -> str:
        """Return it for people: a line a file, as sha256sum prints them, and one that sums up."""
        lines = [f"{file.sha256}  {file.target}" for file in self.files] if not self.image else []
        came = sum(file.received_bytes for file in self.files)
        was = sum(file.kept_bytes for file in self.files)
        total = sum(file.size_bytes for file in self.files)
        subject = f"{self.image} {self.digest}" if self.image else f"{len(self.files)} file(s)"
        rate = came / self.seconds if self.seconds > 0 else 0.0
        lines.append(
            f"{subject}: {amount(total)}, {amount(came)} received in {self.seconds:.1f} s ({amount(rate)}/s)"
            + (f", {amount(was)} were there" if was else "")
        )
        return "\n".join(lines)
