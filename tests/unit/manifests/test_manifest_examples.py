"""The example of HAProxy with its exporter agrees with itself, with the code, and with a real HAProxy."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import click
import yaml

import scaler.__main__
from berthmaster.traffic.haproxy import binary
from scaler.balancer.latency import LOG_FORMAT
from scaler.config import parsed

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "manifests/examples/haproxy"
CONFIG = (EXAMPLE / "haproxy.cfg").read_text()
INSTALL = (ROOT / "docs/install.md").read_text()
OBJECTS = {
    (obj["kind"], obj["metadata"]["name"]): obj
    for path in EXAMPLE.glob("*.yaml")
    for obj in yaml.safe_load_all(path.read_text())
    if "metadata" in obj
}
BALANCER = OBJECTS["StatefulSet", "haproxy"]
POD = BALANCER["spec"]["template"]["spec"]
CONTAINERS = {container["name"]: container for container in POD["containers"]}


def options() -> dict[str, Any]:
    name, *arguments = CONTAINERS["exporter"]["args"]
    assert CONTAINERS["exporter"]["command"] == ["python", "-m", "scaler"]
    context = scaler.__main__.main.commands[name].make_context(name, list(arguments))
    assert isinstance(context, click.Context)
    return context.params


def test_haproxy_and_exporter_meet_at_the_same_sockets() -> None:
    given = options()
    assert f"stats socket {given['runtime_socket']} mode 600 level admin" in CONFIG
    assert f"log {given['log_socket']} format raw" in CONFIG
    assert f'log-format "{LOG_FORMAT}"' in CONFIG
    for container in CONTAINERS.values():
        assert {"name": "sockets", "mountPath": "/run/haproxy"} in container["volumeMounts"]


def test_every_balancer_is_asked_and_takes_its_part_of_the_limit() -> None:
    given, replicas = options(), BALANCER["spec"]["replicas"]
    assert given["balancers"] == replicas
    port = int(given["listen"].rpartition(":")[2])
    shown = re.search(r"sources.yaml: \|\n((?: {4,}.*\n)+)", INSTALL)
    assert shown is not None
    sources = parsed(yaml.safe_load(shown.group(1)))
    assert sources.balancers[given["name"]].urls == tuple(
        f"http://haproxy-{number}.haproxy.edge.svc:{port}" for number in range(replicas)
    )
    assert {"name": "samples", "port": port} in OBJECTS["Service", "haproxy"]["spec"]["ports"]
    assert any(rule["ports"][0]["port"] == port for rule in OBJECTS["NetworkPolicy", "haproxy"]["spec"]["ingress"])


def test_the_token_comes_from_a_secret_that_the_guide_makes() -> None:
    (secret,) = (volume["secret"] for volume in POD["volumes"] if "secret" in volume)
    folder, _, key = options()["token_file"].rpartition("/")
    assert {"name": "token", "mountPath": folder, "readOnly": True} in CONTAINERS["exporter"]["volumeMounts"]
    assert f"create secret generic {secret['secretName']} --from-literal={key}=" in INSTALL


def test_its_pods_are_locked_down() -> None:
    assert POD["securityContext"]["runAsNonRoot"] is True
    for container in CONTAINERS.values():
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
        assert "memory" in container["resources"]["limits"]


def test_requests_are_held_as_in_the_local_demonstration() -> None:
    assert (EXAMPLE / "hold.lua").read_text() == (ROOT / "berthmaster/traffic/templates/hold.lua").read_text()


def test_haproxy_accepts_the_configuration(tmp_path: Path) -> None:
    text = CONFIG.replace("/etc/haproxy", str(EXAMPLE)).replace("/run/haproxy", str(tmp_path))
    (tmp_path / "haproxy.cfg").write_text(text)
    checked = subprocess.run(
        [binary(), "-c", "-f", str(tmp_path / "haproxy.cfg")], capture_output=True, text=True, timeout=30, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert "warning" not in checked.stderr.lower(), checked.stderr
