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
DEVICES = f"{DOMAIN}/devices"
CANDIDATES = f"{DOMAIN}/candidates"
PINNED = f"{DOMAIN}/pinned"
KAI_GPU_FRACTION = "gpu-fraction"
KAI_GPU_MEMORY = "gpu-memory"
KAI_GPU_FRACTION_DEVICES = "gpu-fraction-num-devices"

# Gangs are planned as a whole or not at all; until they are modelled their pods wait.
GANG = f"{DOMAIN}/gang"

# Nodes.
DEVICE_SHARING = f"{DOMAIN}/device-sharing"
UNHEALTHY_DEVICES = f"{DOMAIN}/unhealthy-devices"
GPU_PRODUCT = "nvidia.com/gpu.product"
GPU_MEMORY = "nvidia.com/gpu.memory"
GPU_COUNT = "nvidia.com/gpu.count"
HOSTNAME = "kubernetes.io/hostname"
NODE_NAME_FIELD = "metadata.name"

# Pod condition written while a pod waits, and the ones that say why it is treated specially.
WAITING_CONDITION = f"{DOMAIN}/Waiting"

# The autoscaler's custom resource and its annotations; the exporter beside the balancer reads them.
AUTOSCALER_VERSION = "v1alpha1"
AUTOSCALER_KIND = "ConcurrencyAutoscaler"
AUTOSCALER_PLURAL = "concurrencyautoscalers"
TARGET_CONCURRENCY = f"{DOMAIN}/target-concurrency"
CONCURRENCY_LIMIT = f"{DOMAIN}/concurrency-limit"
CANARY_REPLICA = f"{DOMAIN}/canary-replica"
SERVED_LOCALLY = f"{DOMAIN}/served-locally"  # local clusters only: a process on this machine stands for the pod
AGGREGATE_TO_SCALER = f"{DOMAIN}/aggregate-to-scaler"
POD_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

DRA_GPU_DRIVERS = "gpu."  # how their names begin: gpu.nvidia.com and others
FIELD_MANAGER = "berthmaster"
