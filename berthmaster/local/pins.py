"""Which versions the local control plane is made of: read from tools/*/go.mod, the one place that pins them."""

from __future__ import annotations

import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import LocalClusterError

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """One program of the control plane and how it is built.

    Attributes:
        name: File name.
        folder: Folder under tools/ whose go.mod pins it.
        package: Go package to build.
        module: The module whose required version is the program's version.
        expected_s: Seconds a cold build took on two cores, in the order they are built; a guide for whoever waits.
    """

    name: str
    folder: str
    package: str
    module: str
    expected_s: int


# In build order: the long one second, so that the quick first one shows early that the toolchain works.
BINARIES = (
    Binary(
        name="etcd",
        folder="etcd",
        package="go.etcd.io/etcd/server/v3",
        module="go.etcd.io/etcd/server/v3",
        expected_s=90,
    ),
    Binary(
        name="kube-apiserver",
        folder="kube",
        package="k8s.io/kubernetes/cmd/kube-apiserver",
        module="k8s.io/kubernetes",
        expected_s=475,
    ),
    Binary(
        name="kube-controller-manager",
        folder="kube",
        package="k8s.io/kubernetes/cmd/kube-controller-manager",
        module="k8s.io/kubernetes",
        expected_s=175,
    ),
    Binary(
        name="kube-scheduler",
        folder="kube",
        package="k8s.io/kubernetes/cmd/kube-scheduler",
        module="k8s.io/kubernetes",
        expected_s=20,
    ),
    Binary(
        name="kwok",
        folder="kwok",
        package="sigs.k8s.io/kwok/cmd/kwok",
        module="sigs.k8s.io/kwok",
        expected_s=150,
    ),
    Binary(
        name="kubectl",
        folder="kube",
        package="k8s.io/kubernetes/cmd/kubectl",
        module="k8s.io/kubernetes",
        expected_s=50,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """Versions as go.mod writes them (`v1.37.2`) and the Go release that they ask for (`1.26.0`)."""

    tools: Path
    kubernetes: str
    etcd: str
    kwok: str
    go: str

    @property
    def key(self) -> str:
        """Return the cache folder's name: other pins or another platform, another folder."""
        platform_name = f"{sys.platform}-{platform.machine()}"
        return f"kubernetes-{self.kubernetes}-etcd-{self.etcd}-kwok-{self.kwok}-{platform_name}"

    def version(self, binary: Binary) -> str:
        """Return the pinned version of one program."""
        return {"etcd": self.etcd, "kwok": self.kwok}.get(binary.folder, self.kubernetes)


def read_pins(tools: Path = TOOLS) -> Pins:
    """Return the pins of tools/*/go.mod.

    Raises:
        LocalClusterError: There is no such folder (the package was installed without its checkout), or a go.mod
            lacks the module it is there for.
    """
    if not (tools / "kube" / "go.mod").is_file():
        raise LocalClusterError(
            f"the pinned Go modules are not at {tools}: the local control plane runs from a checkout "
            "(pip install -e PATH-OF-THE-CHECKOUT, or make setup), not from an installed wheel"
        )
    texts = {folder: (tools / folder / "go.mod").read_text() for folder in ("kube", "etcd", "kwok")}
    return Pins(
        tools=tools,
        kubernetes=_required(texts["kube"], "k8s.io/kubernetes"),
        etcd=_required(texts["etcd"], "go.etcd.io/etcd/server/v3"),
        kwok=_required(texts["kwok"], "sigs.k8s.io/kwok"),
        go=max((_go(text) for text in texts.values()), key=release),
    )


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: `v1.37.2-rc.1` and `go1.37.2` give (1, 37, 2), a text without any ()."""
    match = re.search(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _required(go_mod: str, module: str) -> str:
    match = re.search(rf"^\s*(?:require\s+)?{re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    if match is None:
        raise LocalClusterError(f"no version of {module} is pinned in tools/*/go.mod")
    return match[1]


def _go(go_mod: str) -> str:
    match = re.search(r"^go (\S+)", go_mod, re.MULTILINE)
    return match[1] if match else "1.26.0"
