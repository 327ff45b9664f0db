"""Every label, annotation, resource, taint, gate and condition name, in one place."""

from __future__ import annotations

DOMAIN = "berthmaster.dev"

SCHEDULER_NAME = "berthmaster"
NAMESPACE = "berthmaster-system"
MANAGED_LABEL = f"{DOMAIN}/managed"
PLAN_GATE = f"{DOMAIN}/plan"

# Resources. The three of ours and HAMi's two are `ignoredByScheduler`: the extender keeps their books.
GPU = f"{DOMAIN}/gpu"
GPU_MILLI = f"{DOMAIN}/gpu-milli"
GPU_MEMORY_MIB = f"{DOMAIN}/gpu-memory-mib"
NVIDIA_GPU = "nvidia.com/gpu"
NVIDIA_MIG_PREFIX = "nvidia.com/mig-"
HAMI_MEMORY = "nvidia.com/gpumem"
HAMI_CORES = "nvidia.com/gpucores"
HAMI_MEMORY_PERCENTAGE = "nvidia.com/gpumem-percentage"
HAMI_USE_MODELS = "nvidia.com/use-gputype"
HAMI_AVOID_MODELS = "nvidia.com/nouse-gputype"
HAMI_USE_UUIDS = "nvidia.com/use-gpuuuid"
HAMI_AVOID_UUIDS = "nvidia.com/nouse-gpuuuid"
IGNORED_BY_SCHEDULER = (
    GPU,
    GPU_MILLI,
    GPU_MEMORY_MIB,
    HAMI_MEMORY,
    HAMI_CORES,
    HAMI_MEMORY_PERCENTAGE,
)

# Annotations on pods.
GPU_MODELS = f"{DOMAIN}/gpu-models"
MIG_PROFILE = f"{DOMAIN}/mig-profile"  # with one `berthmaster.dev/gpu`: a MIG instance instead of a whole device
SAME_ISLAND = f"{DOMAIN}/same-island"  # "required": all devices of one island, or none
DEVICES = f"{DOMAIN}/devices"
CANDIDATES = f"{DOMAIN}/candidates"
PINNED = f"{DOMAIN}/pinned"
KAI_GPU_FRACTION = "gpu-fraction"
KAI_GPU_MEMORY = "gpu-memory"
KAI_GPU_FRACTION_DEVICES = "gpu-fraction-num-devices"

# Gangs are planned as a whole or not at all. Both are labels of every member; Kubernetes' own way is a PodGroup.
GANG = f"{DOMAIN}/gang"
GANG_SIZE = f"{DOMAIN}/gang-size"
POD_GROUP_API = "scheduling.k8s.io/v1beta1"
POD_GROUP_PLURAL = "podgroups"
POD_GROUP_PREFIX = "podgroup/"  # of the name of a gang that is a PodGroup: no label's value holds a slash

SEAT = f"{DOMAIN}/seat"  # annotation of a gated pod: the berth that is kept for it, "node=devices"
# A move: on the pod that moves, where to and by which way; on its successor, whose place it takes.
MOVING_TO = f"{DOMAIN}/moving-to"  # "node=devices"
MOVING_BY = f"{DOMAIN}/moving-by"  # see binpack/relocation/record.py
MOVED_FROM = f"{DOMAIN}/moved-from"  # uid of the pod that moved
SHARE = f"{DOMAIN}/share"  # annotation of a namespace: its weight among the namespaces whose pods wait

# Nodes.
DEVICE_SHARING = f"{DOMAIN}/device-sharing"
UNHEALTHY_DEVICES = f"{DOMAIN}/unhealthy-devices"
MIG_DEVICES = f"{DOMAIN}/mig-devices"  # annotation: which devices are in MIG mode, see fleet/kube/device_notes.py
ISLANDS = f"{DOMAIN}/islands"  # annotation: groups of devices with a fast link, "0,2;1,3"
GPU_PRODUCT = "nvidia.com/gpu.product"
GPU_MEMORY = "nvidia.com/gpu.memory"
GPU_COUNT = "nvidia.com/gpu.count"
HOSTNAME = "kubernetes.io/hostname"
NODE_NAME_FIELD = "metadata.name"

# What a pod may ask that is planned only where the planner can read of it; otherwise its pods are steered.
VOLUME_CLAIMS = "volume claims"
NAMESPACE_SELECTORS = "affinity to pods of namespaces by their labels"

# Pod condition written while a pod waits, and the ones that say why it is treated specially.
WAITING_CONDITION = f"{DOMAIN}/Waiting"

# The autoscaler's custom resource and its annotations; the exporter beside the balancer reads them.
AUTOSCALER_VERSION = "v1alpha1"
AUTOSCALER_KIND = "ConcurrencyAutoscaler"
AUTOSCALER_PLURAL = "concurrencyautoscalers"
TARGET_CONCURRENCY = f"{DOMAIN}/target-concurrency"
CONCURRENCY_LIMIT = f"{DOMAIN}/concurrency-limit"
CANARY_REPLICA = f"{DOMAIN}/canary-replica"
SURGE = f"{DOMAIN}/surge"  # annotation of an autoscaler: uids of the replicas being moved, "," between them
SERVED_LOCALLY = f"{DOMAIN}/served-locally"  # local clusters only: a process on this machine stands for the pod
AGGREGATE_TO_SCALER = f"{DOMAIN}/aggregate-to-scaler"
POD_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
LEAVES_EARLY = "-1000"  # as that cost: of those that the scaler would drop; what people set is commonly within 100
LEAVES_FIRST = str(-(2**31))  # as that cost: of a replica whose successor serves; no other can be lower

# The warm pool. Its nodes are born with two taints: one until they are proven warm, one for as long as they are the
# pool's. `readiness.k8s.io/` is the prefix that Karpenter, Cluster Autoscaler and the readiness controller understand.
POOL_VERSION = "v1alpha1"
POOL_KIND = "WarmPool"
POOL_PLURAL = "warmpools"
POOL = f"{DOMAIN}/pool"  # label and taint of the pool's nodes, machines and pods; the value names the pool
READINESS_PREFIX = "readiness.k8s.io/"
WARM_CONDITION = f"{DOMAIN}/Warm"  # of a node: its reason names the step that is missing
WARM = f"{DOMAIN}/warm"  # annotation of a node that is open to claims: the image digests proven to be there
CLAIM = f"{DOMAIN}/claim"  # annotation of a claimed node: see fleet/claim.py
DRAW = f"{DOMAIN}/draw"  # annotation of a pod that needed a warm node: whether there was one, see fleet/draw.py
WEIGHTS_CONTAINER = f"{DOMAIN}/weights-container"  # annotation of a pod: init containers that load weights
WEIGHTS_CONDITION = f"{DOMAIN}/WeightsLoaded"  # condition of a pod, which its engine may set
SPARE = f"{DOMAIN}/spare"  # annotation "true": the planner says that everything on this node fits elsewhere
CLOSING = f"{DOMAIN}/closing"  # annotation of a node that is being given up: why
KEEP = f"{DOMAIN}/keep"  # annotation "true" of a node that a person wants left alone
POOL_FINALIZER = f"{DOMAIN}/warmpool"  # of a WarmPool that acts: until its idle nodes are given back
PULL_NAMESPACE = "berthmaster-warmpool"  # where the pods that pull images run, unless a pool says otherwise
AGGREGATE_TO_WARMPOOL = f"{DOMAIN}/aggregate-to-warmpool"
PULLER = f"{DOMAIN}/puller"  # label "true" of the pods that pull a pool's images and hold them on a node
MACHINE = f"{DOMAIN}/machine"  # label of whatever stands for one ordered machine; the value names the provider
OFFER = f"{DOMAIN}/offer"  # annotation of a machine: zone and capacity type that it was ordered as
SHAPE = f"{DOMAIN}/shape"  # annotation of a machine and its node: fingerprint of the shape it was ordered as
ORDER_KEY = f"{DOMAIN}/order"  # annotation: the last order that a scaled object was given
IMAGES = f"{DOMAIN}/images"  # annotation of a puller pod: what it pulls
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
# Annotations of a pod by which people tell every mover to leave it where it is, with the text that means so.
KEEP_STILL = (
    (f"{DOMAIN}/keep", "true"),
    (DO_NOT_DISRUPT, "true"),
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
)

CLAIM_FINALIZER = "resource.kubernetes.io/delete-protection"  # of a ResourceClaim for as long as it is allocated
DRA_GPU_DRIVERS = "gpu."  # how their names begin: gpu.nvidia.com and others
FIELD_MANAGER = "berthmaster"


def surge_tokens(text: str) -> tuple[str, ...]:
    """Return what an annotation `berthmaster.dev/surge` lists, each once, sorted."""
    return tuple(sorted({part.strip() for part in text.split(",")} - {""}))
