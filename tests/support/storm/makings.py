"""What storms are made of: nodes, services, gangs, claims, and everything that people and machines do to them."""

from __future__ import annotations

from random import Random

from fleet import labels
from fleet.kube import paths
from tests.support.builders import node_json, slice_json
from tests.support.storm.api import CLAIMS, DEPLOYMENTS, Key, Object, key_of
from tests.support.storm.cluster import DEVICE_CLASS, DRIVER, ZONE, Cluster, decoded, gated

_A100, _T4 = "NVIDIA-A100-SXM4-80GB", "Tesla-T4"
OTHER_GATE = "example.com/later"
_NODES = ("A100", "T4", "mig", "classic", "cpu", "dra")
_KINDS = ("share", "memory", "whole", "two", "four", "island", "ways", "classic", "cpu", "mig", "claim")
# Of everything something; much of what is moved; much of what devices are claimed for; gangs and instances.
_THEMES = (
    ((4, 1, 1, 1, 1, 1), (2, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1)),
    ((6, 1, 0, 0, 0, 0), (4, 2, 4, 2, 3, 1, 1, 0, 1, 0, 0)),
    ((2, 0, 0, 0, 1, 6), (1, 0, 1, 0, 0, 0, 0, 0, 2, 0, 8)),
    ((1, 0, 6, 1, 0, 0), (1, 0, 1, 0, 0, 0, 0, 1, 1, 8, 0)),
)
_ANTI = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class Makings:
    """Makes a cluster, and then trouble.

    Attributes:
        torn: Gangs of which a member was taken away.
        forged: Pods with annotations that are the planner's alone to write.
        wanted: Replicas that people asked for.
    """

    def __init__(self, cluster: Cluster, rng: Random) -> None:
        self.torn: set[str] = set()
        self.forged: set[Key] = set()
        self.wanted: dict[Key, int] = {}
        self._cluster = cluster
        self._api = cluster.api
        self._rng = rng
        self._number = 0
        self._theme = rng.choice(_THEMES)
        self._lost: dict[str, Object] = {}

    # -- the beginning -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Make a few nodes, services and budgets."""
        rng, api = self._rng, self._api
        for name in ("default", "team"):
            meta: Object = {"name": name, "uid": f"ns-{name}", "labels": {"kind": name}}
            if rng.random() < 0.3:
                meta["annotations"] = {labels.SHARE: rng.choice(("1", "2", "x"))}
            api.put(paths.NAMESPACES, {"metadata": meta})
        api.put(paths.DEVICE_CLASSES, {"metadata": {"name": DEVICE_CLASS, "uid": "class"}, "spec": {}})
        api.put(
            paths.STORAGE_CLASSES,
            {
                "metadata": {"name": "late", "uid": "late"},
                "provisioner": "x.example.com",
                "volumeBindingMode": "WaitForFirstConsumer",
            },
        )
        for zone in "ab":
            self._volume(f"disk-{zone}", zone)
        for number in range(rng.randint(2, 5)):
            self._cluster.add_node(self._node(f"n{number}"))
        for _ in range(rng.randint(1, 6)):
            self._service()
        api.trouble = rng.choice((0.0, 0.05, 0.25))
        api.is_lagging = rng.random() < 0.8

    def _volume(self, name: str, zone: str) -> None:
        meta = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
        note = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
        spec = {"volumeName": f"pv-{name}", "accessModes": ["ReadWriteMany"]}
        self._api.put(paths.VOLUME_CLAIMS, {"metadata": meta | note, "spec": spec, "status": {"phase": "Bound"}})
        volume = {"metadata": {"name": f"pv-{name}", "uid": f"uid-pv-{name}", "labels": {ZONE: zone}}, "spec": {}}
        self._api.put(paths.VOLUMES, volume)

    def _node(self, name: str) -> Object:
        rng = self._rng
        kind = rng.choices(_NODES, self._theme[0])[0]
        count = {"cpu": None, "dra": None, "T4": 2}.get(kind, rng.choice((2, 4)))
        tags = {labels.HOSTNAME: name, "kind": kind}
        if rng.random() < 0.9:
            tags[ZONE] = rng.choice("ab")
        if kind in ("A100", "T4", "mig"):
            tags[labels.DEVICE_SHARING] = "true"
        if kind not in ("cpu", "dra"):
            tags |= {labels.GPU_PRODUCT: _T4 if kind == "T4" else _A100}
            tags |= {labels.GPU_MEMORY: "16384" if kind == "T4" else "81920"}
        notes = {}
        if kind == "mig":
            notes[labels.MIG_DEVICES] = rng.choice(("all", "0", "0;1=3g.40gb@0,3g.40gb@4"))
        if kind == "A100" and count == 4:
            notes[labels.ISLANDS] = rng.choice(("0,1;2,3", "0,2;1,3"))
        if kind == "dra":
            self._slice(name, rng.choice((1, 2, 3)))
        amounts = {"cpu": rng.choice(("4", "8", "16")), "memory": "64Gi", "pods": rng.choice(("4", "10"))}
        return node_json(name, gpus=count, labels=tags, annotations=notes, allocatable=amounts)

    def _slice(self, name: str, count: int, generation: int = 1) -> None:
        devices = [{"name": f"d{i}"} for i in range(count)]
        made = slice_json(name, devices, name=f"{name}-slice", driver=DRIVER, generation=generation)
        made["metadata"]["uid"] = f"uid-slice-{name}"
        self._api.put(paths.RESOURCE_SLICES, made)

    # -- pods ----------------------------------------------------------------------------------------------------

    def _template(self, app: str) -> Object:
        """Return a random kind of pod."""
        rng = self._rng
        notes: Object = {}
        spec: Object = {"priority": rng.choice((0, 0, 0, 10, 100))}
        kind = rng.choices(_KINDS, self._theme[1])[0]
        asks: Object = {
            "share": {labels.GPU_MILLI: rng.choice(("300", "500", "700"))},
            "memory": {labels.GPU_MEMORY_MIB: rng.choice(("8000", "30000"))},
            "whole": {labels.GPU: "1"},
            "two": {labels.GPU: "2"},
            "four": {labels.GPU: "4"},
            "island": {labels.GPU: "2"},
            "ways": {labels.GPU: "1"},
            "mig": {labels.GPU: "1"},
            "classic": {labels.NVIDIA_GPU: rng.choice(("1", "2"))},
        }.get(kind, {})
        if kind == "mig":
            notes[labels.MIG_PROFILE] = rng.choice(("1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"))
        if kind == "ways":
            notes[labels.GPU_MODELS] = rng.choice(("A100=1,T4=2", "T4=2,A100=1", "A100=2@1.5,T4=1"))
        elif kind in ("share", "whole") and rng.random() < 0.3:
            notes[labels.GPU_MODELS] = rng.choice(("A100", "T4", "T4,A100", "H100"))
        if kind == "island":
            notes[labels.SAME_ISLAND] = "required"
        if kind == "claim":
            spec["resourceClaims"] = [
                rng.choice(
                    (
                        {"name": "dev", "resourceClaimTemplateName": "of-1"},
                        {"name": "dev", "resourceClaimTemplateName": "of-2"},
                        {"name": "dev", "resourceClaimName": f"shared-{rng.choice('xy')}"},
                    )
                )
            ]
        asks = {"cpu": rng.choice(("100m", "1", "2", "3")), "memory": "1Gi", **asks}
        self._rules(app, spec)
        if rng.random() < 0.1:
            spec["preemptionPolicy"] = "Never"
        if rng.random() < 0.15:
            spec["nodeSelector"] = {ZONE: rng.choice("ab")}
        if rng.random() < 0.2:
            spec["tolerations"] = [{"key": "k", "operator": "Exists"}]
        template = gated(asks, app=app, annotations=notes, **spec)
        if rng.random() < 0.07:
            template["spec"]["schedulingGates"].insert(rng.randrange(2), {"name": OTHER_GATE})
        return template

    def _rules(self, app: str, spec: Object) -> None:
        rng = self._rng
        term = {"topologyKey": rng.choice((labels.HOSTNAME, ZONE)), "labelSelector": {"matchLabels": {"app": app}}}
        match rng.randrange(14):
            case 0:
                spec["affinity"] = {"podAntiAffinity": {_ANTI: [term]}}
            case 1:
                spec["affinity"] = {"podAffinity": {_ANTI: [term]}}
            case 2:
                weighed = {"weight": rng.randint(1, 100), "podAffinityTerm": term}
                spec["affinity"] = {"podAntiAffinity": {_PREFERRED: [weighed]}}
            case 3 | 4:
                spec["topologySpreadConstraints"] = [
                    {
                        "topologyKey": ZONE,
                        "maxSkew": rng.choice((1, 1, 2)),
                        "whenUnsatisfiable": rng.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
                        "labelSelector": {"matchLabels": {"app": app}},
                        "nodeTaintsPolicy": rng.choice(("Honor", "Ignore")),
                    }
                ]
            case 5:
                spec["ports"] = [{"hostPort": rng.choice((80, 443)), "containerPort": 80}]
            case 6:
                claim = rng.choice(("disk-a", "disk-b"))
                spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
            case _:
                pass

    def _service(self) -> str:
        self._number += 1
        app = f"s{self._number}"
        namespace = self._rng.choice(("default", "default", "team"))
        replicas = self.wanted[namespace, app] = self._rng.randint(1, 3)
        self._cluster.add_service(app, self._template(app), replicas, namespace)
        if self._rng.random() < 0.4:
            self._api.put(
                paths.BUDGETS,
                {
                    "metadata": {"name": app, "namespace": namespace, "uid": f"pdb-{app}", "generation": 1},
                    "spec": {
                        "maxUnavailable": self._rng.choice((0, 1, 1)),
                        "selector": {"matchLabels": {"app": app}},
                    },
                    "status": {},
                },
            )
        return f"service {app}"

    def _gang(self) -> str:
        self._number += 1
        name, size = f"g{self._number}", self._rng.choice((2, 2, 3))
        owner = {
            "kind": self._rng.choice(("Job", "ReplicaSet")),
            "name": name,
            "uid": f"uid-{name}",
            "controller": True,
        }
        tags = {labels.GANG: name, labels.GANG_SIZE: str(size)}
        priority = self._rng.choice((0, 0, 50))
        first = self._template(name)
        for number in range(size + self._rng.choice((0, 0, 0, 1, -1))):
            template = first if self._rng.random() < 0.6 else self._template(name)
            template["metadata"]["labels"] |= tags
            template["spec"]["priority"] = priority
            self._cluster.add_pod(template, owner, name=f"{name}-{number}")
        return f"gang {name} of {size}"

    def _alone(self) -> str:
        self._number += 1
        template = self._template(f"a{self._number}")
        if self._rng.random() < 0.15:
            text = self._rng.choice(("n0=0", "n1=0,1", "n9=0", "n0", "?", "n0=0:1g.10gb@0"))
            name = self._rng.choice(
                (labels.SEAT, labels.MOVING_TO, labels.DEVICES, labels.MOVED_FROM, labels.CANDIDATES)
            )
            template["metadata"].setdefault("annotations", {})[name] = text
            key = self._cluster.add_pod(template, None)
            self.forged.add(key)
            return f"forged {key[1]} {name}={text}"
        return f"alone {self._cluster.add_pod(template, None)}"

    # -- trouble -------------------------------------------------------------------------------------------------

    def happen(self) -> str:
        """Let one thing happen, and say what."""
        things = (
            (self._service, 3),
            (self._gang, 2),
            (self._alone, 3),
            (self._scale, 4),
            (self._delete_pod, 4),
            (self._fail_pod, 1),
            (self._lose_node, 1),
            (self._return_node, 2),
            (self._change_node, 2),
            (self._delete_service, 1),
            (self._shared_claim, 1),
            (self._free_claim, 1),
            (self._step_clock, 1),
            (self._touch_pod, 1),
            (self._bear_again, 2),
            (self._open_gate, 2),
            (self._tighten, 1),
            (self._foreign, 2),
            (self._resize, 1),
            (self._change_volume, 1),
        )
        return self._rng.choices([what for what, _ in things], [weight for _, weight in things])[0]()

    def _pick(self, collection: str) -> Object | None:
        objects = self._api.objects[collection]
        return self._rng.choice(list(objects.values())) if objects else None

    def _scale(self) -> str:
        service = self._pick(DEPLOYMENTS)
        if service is None:
            return "nothing"
        wanted = self.wanted[key_of(service)] = self._rng.randint(0, 4)
        self._api.change(DEPLOYMENTS, key_of(service), lambda obj: obj["spec"].update(replicas=wanted))
        return f"scale {key_of(service)[1]} to {wanted}"

    def _delete_service(self) -> str:
        service = self._pick(DEPLOYMENTS)
        if service is None:
            return "nothing"
        self._api.change(DEPLOYMENTS, key_of(service), lambda obj: obj["spec"].update(replicas=0))
        self._cluster.beat()
        self._api.remove(DEPLOYMENTS, key_of(service))
        return f"no more {key_of(service)[1]}"

    def _tear(self, pod: Object) -> None:
        self.torn.add(pod["metadata"]["labels"].get(labels.GANG, ""))

    def _tear_seated(self) -> None:
        """Excuse gangs that are half-way to their places: nobody can take back a pin for a node that changes."""
        for pod in self._cluster.pods.values():
            if decoded(pod).gates and decoded(pod).seat is not None:
                self._tear(pod)

    def _delete_pod(self) -> str:
        pod = self._pick(paths.PODS)
        if pod is None:
            return "nothing"
        self._tear(pod)
        self._api.end(paths.PODS, key_of(pod))
        return f"delete {key_of(pod)[1]}"

    def _fail_pod(self) -> str:
        pod = self._pick(paths.PODS)
        if pod is None or not pod["spec"].get("nodeName"):
            return "nothing"
        self._tear(pod)
        phase = self._rng.choice(("Failed", "Succeeded"))
        self._api.change(paths.PODS, key_of(pod), lambda obj: obj["status"].update(phase=phase))
        return f"{phase} {key_of(pod)[1]}"

    def _touch_pod(self) -> str:
        pod = self._pick(paths.PODS)
        if pod is None:
            return "nothing"
        value = self._rng.choice("xyz")
        self._api.change(paths.PODS, key_of(pod), lambda obj: obj["metadata"]["labels"].update(touched=value))
        return f"touch {key_of(pod)[1]}"

    def _lose_node(self) -> str:
        node = self._pick(paths.NODES)
        if node is None or len(self._api.objects[paths.NODES]) < 2:
            return "nothing"
        name = node["metadata"]["name"]
        self._lost[name] = node
        self._tear_seated()
        self._api.remove(paths.NODES, ("", name))
        for key, pod in list(self._cluster.pods.items()):
            if pod["spec"].get("nodeName") == name:
                self._tear(pod)
                if self._rng.random() < 0.8:
                    self._api.remove(paths.PODS, key)
        return f"lose {name}"

    def _return_node(self) -> str:
        if not self._lost:
            return "nothing"
        name = self._rng.choice(sorted(self._lost))
        node = self._lost.pop(name)
        if self._rng.random() < 0.3:
            node = self._node(name)
        elif self._rng.random() < 0.2:
            name = f"{name}x"
            node = {**node, "metadata": {**node["metadata"], "name": name}}
        self._api.put(paths.NODES, node | {"metadata": {**node["metadata"], "uid": f"uid-{name}-{self._rng.random()}"}})
        return f"return {name}"

    def _change_node(self) -> str:
        node = self._pick(paths.NODES)
        if node is None:
            return "nothing"
        name, rng = node["metadata"]["name"], self._rng
        what = rng.choice(("cordon", "taint", "dead", "fewer", "model", "zone", "slices", "well"))
        key = ("", name)

        def change(obj: Object) -> None:
            meta, spec, amounts = obj["metadata"], obj["spec"], obj["status"]
            match what:
                case "cordon":
                    spec["unschedulable"] = True
                case "taint":
                    effect = rng.choice(("NoSchedule", "PreferNoSchedule"))
                    spec["taints"] = [{"key": "k", "effect": effect}]
                case "dead":
                    meta["annotations"][labels.UNHEALTHY_DEVICES] = rng.choice(("0", "1", "0,1", "7"))
                case "fewer" if labels.NVIDIA_GPU in amounts["capacity"]:
                    amounts["capacity"][labels.NVIDIA_GPU] = amounts["allocatable"][labels.NVIDIA_GPU] = "1"
                case "model" if labels.GPU_PRODUCT in meta["labels"]:
                    meta["labels"][labels.GPU_PRODUCT] = rng.choice((_A100, _T4, "NVIDIA-H100-80GB-HBM3"))
                case "zone":
                    meta["labels"][ZONE] = rng.choice("ab")
                case "well":
                    spec.pop("unschedulable", None)
                    spec["taints"] = []
                    meta["annotations"].pop(labels.UNHEALTHY_DEVICES, None)
                case _:
                    pass

        self._api.change(paths.NODES, key, change)
        self._tear_seated()
        if what == "slices" and node["metadata"]["labels"].get("kind") == "dra":
            self._slice(name, rng.choice((1, 2, 4)), generation=rng.randint(2, 9))
        return f"{what} {name}"

    def _shared_claim(self) -> str:
        name = f"shared-{self._rng.choice('xy')}"
        namespace = self._rng.choice(("default", "team"))
        if (namespace, name) in self._api.objects[CLAIMS]:
            return "nothing"
        self._cluster.add_claim(name, namespace, None, self._rng.choice((1, 1, 2)))
        return f"claim {name}"

    def _free_claim(self) -> str:
        """Take a claim away from gated pods, or give its device to it from elsewhere."""
        claim = self._pick(CLAIMS)
        if claim is None:
            return "nothing"
        users = {one["uid"] for one in claim["status"].get("reservedFor", ())}
        placed = [decoded(pod) for pod in self._cluster.pods.values() if pod["metadata"]["uid"] in users]
        if any(not pod.gates for pod in placed):
            return "nothing"
        if self._rng.random() < 0.5:
            self._api.remove(CLAIMS, key_of(claim))
            return f"delete claim {key_of(claim)[1]}"
        self._api.change(CLAIMS, key_of(claim), lambda obj: obj.update(status={}))
        return f"free claim {key_of(claim)[1]}"

    def _step_clock(self) -> str:
        seconds = self._rng.choice((-3600.0, -1.0, 1.0, 86_400.0))
        self._cluster.clock.step(seconds)
        return f"the clock jumps by {seconds}"

    def _bear_again(self) -> str:
        """Delete a pod that is not a gang's and make another of its name at once, as StatefulSets do."""
        pod = self._pick(paths.PODS)
        if pod is None or labels.GANG in pod["metadata"]["labels"] or key_of(pod) in self.forged:
            return "nothing"
        namespace, name = key_of(pod)
        service = self._api.objects[DEPLOYMENTS].get((namespace, pod["metadata"]["labels"].get("app", "")))
        owners = pod["metadata"].get("ownerReferences")
        if service is None or not owners:
            return "nothing"
        self._api.remove(paths.PODS, (namespace, name))
        self._cluster.add_pod(service["spec"]["template"], owners[0], namespace, name)
        return f"{name} is born again"

    def _open_gate(self) -> str:
        """Let somebody else's gate go."""
        for key, pod in self._cluster.pods.items():
            gates = pod["spec"].get("schedulingGates", [])
            if any(gate["name"] == OTHER_GATE for gate in gates):
                left = [gate for gate in gates if gate["name"] != OTHER_GATE]
                self._api.change(paths.PODS, key, lambda obj, left=left: obj["spec"].update(schedulingGates=left))
                return f"open {key[1]}"
        return "nothing"

    def _tighten(self) -> str:
        """Add to the node selector of a gated pod, as the API allows."""
        pod = self._pick(paths.PODS)
        if pod is None or not pod["spec"].get("schedulingGates") or "nodeSelector" in pod["spec"]:
            return "nothing"
        selector = {ZONE: self._rng.choice("ab")}
        self._api.change(paths.PODS, key_of(pod), lambda obj: obj["spec"].update(nodeSelector=selector))
        return f"tighten {key_of(pod)[1]}"

    def _foreign(self) -> str:
        """Let another scheduler's pod, or a DaemonSet's, come to a node."""
        node = self._pick(paths.NODES)
        if node is None:
            return "nothing"
        self._number += 1
        asks = {"cpu": self._rng.choice(("100m", "2")), "memory": "1Gi"}
        if self._rng.random() < 0.2:
            asks[labels.NVIDIA_GPU] = "1"
        template = gated(asks, app=f"f{self._number}", nodeName=node["metadata"]["name"], schedulingGates=[])
        template["spec"]["schedulerName"] = "default-scheduler"
        kind = self._rng.choice(("DaemonSet", "ReplicaSet", "Node"))
        owner = {"kind": kind, "name": "f", "uid": "uid-f", "controller": True}
        return f"foreign {self._cluster.add_pod(template, owner)}"

    def _resize(self) -> str:
        """Let a bound pod ask for more CPU where it stands."""
        pod = self._pick(paths.PODS)
        if pod is None or not pod["spec"].get("nodeName"):
            return "nothing"
        amount = self._rng.choice(("100m", "4"))
        key = key_of(pod)
        self._api.change(
            paths.PODS, key, lambda obj: obj["spec"]["containers"][0]["resources"]["requests"].update(cpu=amount)
        )
        return f"resize {key[1]} to {amount}"

    def _change_volume(self) -> str:
        """Let a disk go, come, or be in another zone."""
        name = f"disk-{self._rng.choice('ab')}"
        claim = ("default", name)
        if claim in self._api.objects[paths.VOLUME_CLAIMS] and self._rng.random() < 0.5:
            self._api.remove(paths.VOLUME_CLAIMS, claim)
            return f"no {name}"
        self._volume(name, self._rng.choice("ab"))
        return f"{name} anew"
