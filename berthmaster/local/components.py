"""The processes of a local cluster: their command lines, their health addresses and the order they start in."""

from __future__ import annotations

import secrets
import string
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from berthmaster.local import kubeconfig
from berthmaster.local.layout import Layout
from berthmaster.local.pki import CLIENTS
from berthmaster.local.probes import Probe

PORTS = (
    "etcd",
    "etcd-peer",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "extender",
    "planner",
    "scaler",
    "warmpool",
    "exporter",
)
STORE, API = "etcd", "kube-apiserver"
EXTENDER, PLANNER, SCALER, WARMPOOL = "extender", "planner", "scaler", "warmpool"
# Nothing of the cluster listens there: it is where the scaler looks for the exporter of a balancer on this machine.
EXPORTER = "exporter"
BALANCER = "local"
# Ten hours: fake nodes give a sign of life every hour or two, because leases would be hundreds of writes a second.
_NODE_GRACE = "36000s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a cluster is made of.

    Attributes:
        has_extender: Run our extender, and tell kube-scheduler of it.
        has_planner: Run our planner.
        has_scaler: Run our scaler; it knows one balancer, `local`, by the exporter at the port kept for it.
        has_warmpool: Run our warm pool's controller; it plays the cloud of pools with provider kwok.
        has_policies: Apply manifests/overlays/kwok (definitions, rights, admission policies).
        has_pod_groups: Serve PodGroups, which Kubernetes 1.37 does only where the feature GenericWorkload is turned on.
        has_stock_scheduler: Leave kube-scheduler as it comes: one profile, no extender; for comparisons.
    """

    has_extender: bool = True
    has_planner: bool = True
    has_scaler: bool = True
    has_warmpool: bool = True
    has_policies: bool = True
    has_stock_scheduler: bool = False
    has_pod_groups: bool = False


_POD_GROUPS = "--feature-gates=GenericWorkload=true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One process: argv[0] is an absolute path."""

    name: str
    argv: tuple[str, ...]
    probe: Probe


def write_configuration(layout: Layout, ports: Mapping[str, int], options: Options, *, kubernetes: str) -> None:
    """Write the kubeconfigs, kube-scheduler's and kwok's configuration."""
    api = ports[API]
    kubeconfig.write(layout.kubeconfig, port=api, pki=layout.pki, client="admin", context=layout.name)
    for client in CLIENTS:
        if client != "admin":
            kubeconfig.write(_client(layout, client), port=api, pki=layout.pki, client=client, context=layout.name)
    scheduler = _template("scheduler-stock.yaml" if options.has_stock_scheduler else "scheduler.yaml")
    if not options.has_extender:
        scheduler = scheduler.partition("\nextenders:")[0] + "\n"
    (layout.config / "scheduler.yaml").write_text(
        string.Template(scheduler).substitute(
            kubeconfig=_client(layout, "kube-scheduler"), extender=f"http://127.0.0.1:{ports['extender']}"
        )
    )
    (layout.config / "sources.yaml").write_text(
        f"balancers:\n  {BALANCER}:\n    url: http://127.0.0.1:{ports[EXPORTER]}\n"
    )
    (layout.config / "history.token").write_text(secrets.token_urlsafe())
    (layout.config / "history.token").chmod(0o600)
    (layout.config / "kwok.yaml").write_text(string.Template(_template("kwok.yaml")).substitute(kubelet=kubernetes))


def components(
    layout: Layout, ports: Mapping[str, int], options: Options, binaries: Mapping[str, str]
) -> tuple[Component, ...]:
    """Return the processes in the order in which they may start; all but the first two need the API server."""
    found = [
        _etcd(layout, ports, binaries),
        _apiserver(layout, ports, options, binaries),
        _controller_manager(layout, ports, binaries),
        _scheduler(layout, ports, options, binaries),
        _kwok(layout, ports, binaries),
    ]
    if options.has_extender:
        found.append(_ours(layout, ports, "binpack", EXTENDER))
    if options.has_planner:
        found.append(_ours(layout, ports, "binpack", PLANNER))
    if options.has_scaler:
        found.append(_ours(layout, ports, "scaler", SCALER, "controller", *_sources(layout)))
    if options.has_warmpool:
        found.append(_ours(layout, ports, "warmpool", WARMPOOL, "controller", "--kwok"))
    return tuple(found)


def _etcd(layout: Layout, ports: Mapping[str, int], binaries: Mapping[str, str]) -> Component:
    client, peer = f"http://127.0.0.1:{ports['etcd']}", f"http://127.0.0.1:{ports['etcd-peer']}"
    return Component(
        name=STORE,
        argv=(
            binaries["etcd"],
            f"--name={layout.name}",
            f"--data-dir={layout.data}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={layout.name}={peer}",
            # A local cluster may be lost with the machine; it may not be slow.
            "--unsafe-no-fsync",
            "--quota-backend-bytes=8589934592",
            "--auto-compaction-retention=1",
            "--log-level=warn",
        ),
        probe=Probe(port=ports["etcd"], path="/health"),
    )


def _apiserver(layout: Layout, ports: Mapping[str, int], options: Options, binaries: Mapping[str, str]) -> Component:
    pki, port = layout.pki, ports[API]
    return Component(
        name=API,
        argv=(
            binaries["kube-apiserver"],
            f"--etcd-servers=http://127.0.0.1:{ports['etcd']}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={port}",
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={pki / 'server.crt'}",
            f"--tls-private-key-file={pki / 'server.key'}",
            f"--client-ca-file={pki / 'ca.crt'}",
            "--authorization-mode=Node,RBAC",
            f"--service-account-issuer=https://127.0.0.1:{port}",
            f"--service-account-key-file={pki / 'sa.pub'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged=true",
            # One user on one machine: nothing to be fair between, and nothing to hold back.
            "--enable-priority-and-fairness=false",
            "--max-requests-inflight=0",
            "--max-mutating-requests-inflight=0",
            *([_POD_GROUPS, "--runtime-config=scheduling.k8s.io/v1beta1=true"] if options.has_pod_groups else []),
        ),
        probe=Probe(port=port, path="/readyz", is_tls=True),
    )


def _controller_manager(layout: Layout, ports: Mapping[str, int], binaries: Mapping[str, str]) -> Component:
    name = "kube-controller-manager"
    return Component(
        name=name,
        argv=(
            binaries[name],
            *_serving(layout, ports[name]),
            *_delegating(_client(layout, name)),
            f"--kubeconfig={_client(layout, name)}",
            "--leader-elect=false",
            "--use-service-account-credentials",
            # It tells kubelets how long to cache secrets, and patches every node at every size step of the cluster.
            "--controllers=*,-ttl-controller",
            f"--service-account-private-key-file={layout.pki / 'sa.key'}",
            f"--root-ca-file={layout.pki / 'ca.crt'}",
            "--kube-api-qps=5000",
            "--kube-api-burst=10000",
            f"--node-monitor-grace-period={_NODE_GRACE}",
            f"--node-startup-grace-period={_NODE_GRACE}",
        ),
        probe=Probe(port=ports[name], path="/healthz", is_tls=True),
    )


def _scheduler(layout: Layout, ports: Mapping[str, int], options: Options, binaries: Mapping[str, str]) -> Component:
    name = "kube-scheduler"
    return Component(
        name=name,
        argv=(
            binaries[name],
            *_serving(layout, ports[name]),
            *_delegating(_client(layout, name)),
            f"--config={layout.config / 'scheduler.yaml'}",
            *([_POD_GROUPS] if options.has_pod_groups else []),
        ),
        probe=Probe(port=ports[name], path="/readyz", is_tls=True),
    )


def _kwok(layout: Layout, ports: Mapping[str, int], binaries: Mapping[str, str]) -> Component:
    return Component(
        name="kwok",
        argv=(
            binaries["kwok"],
            f"--kubeconfig={_client(layout, 'kwok')}",
            f"--config={layout.config / 'kwok.yaml'}",
            "--manage-all-nodes=false",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            "--node-lease-duration-seconds=0",
            "--node-ip=10.0.0.1",
            "--cidr=10.0.0.0/16",
            f"--server-address=127.0.0.1:{ports['kwok']}",
        ),
        probe=Probe(port=ports["kwok"], path="/healthz"),
    )


def _ours(
    layout: Layout, ports: Mapping[str, int], package: str, name: str, command: str = "", *more: str
) -> Component:
    return Component(
        name=name,
        argv=(
            sys.executable,
            "-P",  # the folder that `up` was typed in must not shadow the package
            "-m",
            package,
            command or name,
            f"--kubeconfig={_client(layout, name)}",
            f"--listen=127.0.0.1:{ports[name]}",
            *more,
        ),
        probe=Probe(port=ports[name], path="/readyz"),
    )


def _sources(layout: Layout) -> tuple[str, ...]:
    return f"--sources={layout.config / 'sources.yaml'}", f"--history-token={layout.config / 'history.token'}"


def _serving(layout: Layout, port: int) -> tuple[str, ...]:
    return (
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={layout.pki / 'server.crt'}",
        f"--tls-private-key-file={layout.pki / 'server.key'}",
        f"--client-ca-file={layout.pki / 'ca.crt'}",
    )


def _delegating(client: Path) -> tuple[str, ...]:
    return (
        f"--authentication-kubeconfig={client}",
        f"--authorization-kubeconfig={client}",
        "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
    )


def _client(layout: Layout, client: str) -> Path:
    return layout.config / f"{client}.kubeconfig"


def _template(name: str) -> str:
    return resources.files("berthmaster.local").joinpath("templates", name).read_text()
