"""`berthmaster fetch`: the same as `berthmaster-fetch`, for people who have the whole of Berthmaster."""

from __future__ import annotations

from warmpool.fetch.command import command

__all__ = ["command"]
