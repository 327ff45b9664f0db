"""What a results file was measured with: the commit and the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any


def commit() -> str:
    """Return the commit of this checkout, with `-dirty` where it has been changed since."""
    try:
        asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> dict[str, Any]:
    """Return what figures depend on beside the code."""
    return {"cpus": os.cpu_count(), "python": platform.python_version(), "numpy": version("numpy")}
