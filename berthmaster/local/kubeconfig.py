"""Kubeconfigs of the local cluster: certificates stand inside, so that the file can be copied alone."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import yaml


def write(path: Path, *, port: int, pki: Path, client: str, context: str) -> None:
    """Write the kubeconfig of one client of the API server on 127.0.0.1:port.

    Args:
        path: The file to write, readable by its owner only.
        port: The API server's port.
        pki: Folder with ca.crt, CLIENT.crt and CLIENT.key.
        client: Which client certificate it shows.
        context: Name of context and cluster, for people.
    """
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "clusters": [
            {
                "name": context,
                "cluster": {
                    "server": f"https://127.0.0.1:{port}",
                    "certificate-authority-data": _inline(pki / "ca.crt"),
                },
            }
        ],
        "users": [
            {
                "name": client,
                "user": {
                    "client-certificate-data": _inline(pki / f"{client}.crt"),
                    "client-key-data": _inline(pki / f"{client}.key"),
                },
            }
        ],
        "contexts": [{"name": context, "context": {"cluster": context, "user": client}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        yaml.safe_dump(content, file, sort_keys=False)


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
