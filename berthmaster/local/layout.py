"""Where a local cluster keeps its files, and what it may be called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import LocalClusterError

DEFAULT_NAME = "local"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?", re.ASCII)


def check_name(name: str) -> str:
    """Return the name if a cluster may have it.

    Raises:
        LocalClusterError: It is not 1 to 40 lower-case letters, digits and inner hyphens (it becomes a folder name).
    """
    if _NAME.fullmatch(name) is None:
        raise LocalClusterError(
            f"{name!r} cannot name a cluster: use 1 to 40 lower-case letters, digits and hyphens, no hyphen at the ends"
        )
    return name


def state_home(environ: Mapping[str, str]) -> Path:
    """Return the folder of all clusters: $XDG_STATE_HOME/berthmaster, else ~/.local/state/berthmaster."""
    return _home(environ, "XDG_STATE_HOME", ".local/state")


def cache_home(environ: Mapping[str, str]) -> Path:
    """Return the folder of built binaries: $XDG_CACHE_HOME/berthmaster, else ~/.cache/berthmaster."""
    return _home(environ, "XDG_CACHE_HOME", ".cache")


def _home(environ: Mapping[str, str], variable: str, fallback: str) -> Path:
    """Return the XDG folder of this project; relative values are ignored, as the XDG specification asks."""
    named = environ.get(variable, "")
    base = Path(named) if named.startswith("/") else Path(environ.get("HOME", "~")).expanduser() / fallback
    return base / "berthmaster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The files of one cluster, all under `home/name`; only the lock lies beside it."""

    home: Path
    name: str

    @property
    def root(self) -> Path:
        """Return the folder that `down` removes."""
        return self.home / self.name

    @property
    def lock(self) -> Path:
        """Return the file whose lock serialises `up` and `down` of this cluster."""
        return self.home / f".{self.name}.lock"

    @property
    def record(self) -> Path:
        """Return the file that says what was started with which ports and options."""
        return self.root / "cluster.json"

    @property
    def kubeconfig(self) -> Path:
        """Return the kubeconfig of the administrator."""
        return self.root / "kubeconfig"

    @property
    def pki(self) -> Path:
        """Return the folder of keys and certificates."""
        return self.root / "pki"

    @property
    def config(self) -> Path:
        """Return the folder of the components' configuration and kubeconfigs."""
        return self.root / "config"

    @property
    def data(self) -> Path:
        """Return the folder of etcd's data."""
        return self.root / "data"

    def log(self, component: str) -> Path:
        """Return the log file of one component."""
        return self.root / "logs" / f"{component}.log"

    def process(self, component: str) -> Path:
        """Return the file that identifies the component's process."""
        return self.root / "processes" / f"{component}.json"
