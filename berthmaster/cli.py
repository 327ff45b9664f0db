"""Where the command starts: even the first imports end quietly on Ctrl-C."""

from __future__ import annotations

import importlib

from berthmaster.interrupted import leaving_quietly


def main() -> None:
    """Run the command line."""
    with leaving_quietly():
        root = importlib.import_module("berthmaster.root")
    root.run()
