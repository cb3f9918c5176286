"""
The kinds of kueue.x-k8s.io, and the names that go with them, for the other packages: import them from here.

The shapes are those of v1beta2; objects of other versions are converted on their way in (``convert.py``). START HERE
to find a field: ``queues.py`` says who may use how much, ``workloads.py`` what is asked for and what became of it,
``checks.py`` what else must be true.

Used by: every layer. Kueue: apis/kueue/v1beta2
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

# What users write on Workloads, and what keeps an object that is in use. Those of jobs and pods: kinds/metadata.py.
ADMISSION_GATED_BY_ANNOTATION = f"{GROUP}/admission-gated-by"
PRIORITY_BOOST_ANNOTATION = f"{GROUP}/priority-boost"
ELASTIC_JOB_ANNOTATION = f"{GROUP}/elastic-job"
RESOURCE_IN_USE_FINALIZER = f"{GROUP}/resource-in-use"
