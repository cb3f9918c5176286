"""
The kinds of kueue.x-k8s.io and their constants. Other packages import them from here.

The shapes are those of v1beta2; ``convert.py`` converts objects of other versions when they are read. To find a field:
``queues.py`` has quotas, ``workloads.py`` has requests and their status, ``checks.py`` has admission checks.

Kueue: apis/kueue/v1beta2
"""

from __future__ import annotations

from kyu.api.checks import (
    MULTIKUEUE_CONTROLLER,
    PROVISIONING_CONTROLLER,
    AdmissionCheck,
    MultiKueueCluster,
    MultiKueueConfig,
    ProvisioningRequestConfig,
    ProvisioningRequestConfigSpec,
)
from kyu.api.meta import Object
from kyu.api.queues import (
    GROUP,
    HOSTNAME_LABEL,
    VERSION,
    ClusterQueue,
    ClusterQueuePreemption,
    Cohort,
    FairSharing,
    FlavorQuotas,
    LocalQueue,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Topology,
    WorkloadPriorityClass,
)
from kyu.api.workloads import (
    ADMITTED,
    QUOTA_RESERVED,
    Admission,
    AdmissionCheckState,
    PodSet,
    PodSetAssignment,
    PodSetTopologyRequest,
    PodSetUpdate,
    TopologyAssignment,
    Workload,
)

__all__ = [
    "ADMISSION_GATED_BY_ANNOTATION",
    "ADMITTED",
    "ELASTIC_JOB_ANNOTATION",
    "GROUP",
    "HOSTNAME_LABEL",
    "KINDS",
    "MULTIKUEUE_CONTROLLER",
    "PRIORITY_BOOST_ANNOTATION",
    "PROVISIONING_CONTROLLER",
    "QUOTA_RESERVED",
    "RESOURCE_IN_USE_FINALIZER",
    "VERSION",
    "Admission",
    "AdmissionCheck",
    "AdmissionCheckState",
    "ClusterQueue",
    "ClusterQueuePreemption",
    "Cohort",
    "FairSharing",
    "FlavorQuotas",
    "LocalQueue",
    "MultiKueueCluster",
    "MultiKueueConfig",
    "PodSet",
    "PodSetAssignment",
    "PodSetTopologyRequest",
    "PodSetUpdate",
    "ProvisioningRequestConfig",
    "ProvisioningRequestConfigSpec",
    "ResourceFlavor",
    "ResourceGroup",
    "ResourceQuota",
    "Topology",
    "TopologyAssignment",
    "Workload",
    "WorkloadPriorityClass",
]

KINDS: tuple[type[Object], ...] = (
    ResourceFlavor,
    ClusterQueue,
    LocalQueue,
    Workload,
    WorkloadPriorityClass,
    Cohort,
    AdmissionCheck,
    ProvisioningRequestConfig,
    Topology,
    MultiKueueCluster,
    MultiKueueConfig,
)

# Annotations and finalizers of Kueue's objects. Those of jobs and pods are in kinds/metadata.py.
ADMISSION_GATED_BY_ANNOTATION = f"{GROUP}/admission-gated-by"
PRIORITY_BOOST_ANNOTATION = f"{GROUP}/priority-boost"
ELASTIC_JOB_ANNOTATION = f"{GROUP}/elastic-job"
RESOURCE_IN_USE_FINALIZER = f"{GROUP}/resource-in-use"
