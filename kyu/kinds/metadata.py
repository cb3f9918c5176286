"""
The labels, annotations, gates and names that Kueue's users and Kueue itself put on jobs and pods.

Keys are data shared by all kinds; the few functions read them off a JSON object and never fail on a missing part.

Kueue: pkg/controller/constants, pkg/controller/jobframework/workload_names.go
"""

from __future__ import annotations

import hashlib

from kyu.api.meta import Json, Kind
from kyu.kinds import fields

PREFIX = "kueue.x-k8s.io/"

# Labels and annotations that users write.
QUEUE_NAME = PREFIX + "queue-name"
PRIORITY_CLASS = PREFIX + "priority-class"
MAX_EXEC_TIME_SECONDS = PREFIX + "max-exec-time-seconds"
PREBUILT_WORKLOAD = PREFIX + "prebuilt-workload-name"
ADMISSION_GATED_BY = PREFIX + "admission-gated-by"
ELASTIC_JOB = PREFIX + "elastic-job"
JOB_MIN_PARALLELISM = PREFIX + "job-min-parallelism"
JOB_COMPLETIONS_EQUAL_PARALLELISM = PREFIX + "job-completions-equal-parallelism"
POD_GROUP_NAME = PREFIX + "pod-group-name"
POD_GROUP_TOTAL_COUNT = PREFIX + "pod-group-total-count"
POD_GROUP_FAST_ADMISSION = PREFIX + "pod-group-fast-admission"
POD_GROUP_SERVING = PREFIX + "pod-group-serving"
POD_GROUP_POD_INDEX = PREFIX + "pod-group-pod-index"
POD_GROUP_POD_INDEX_LABEL = PREFIX + "pod-group-pod-index-label"
RETRIABLE_IN_GROUP = PREFIX + "retriable-in-group"
REQUIRED_TOPOLOGY = PREFIX + "podset-required-topology"
PREFERRED_TOPOLOGY = PREFIX + "podset-preferred-topology"
UNCONSTRAINED_TOPOLOGY = PREFIX + "podset-unconstrained-topology"
SLICE_REQUIRED_TOPOLOGY = PREFIX + "podset-slice-required-topology"
SLICE_SIZE = PREFIX + "podset-slice-size"
SLICE_CONSTRAINTS = PREFIX + "podset-slice-required-topology-constraints"
POD_SET_GROUP_NAME = PREFIX + "podset-group-name"

# Written by users of Kyu: the names of jobs to wait for, and the gate that holds the job meanwhile.
JOB_DEPENDENCIES = "kyu.dev/after"
DEPENDENCY_GATE = "kyu.dev/after"

# Annotations of a job with this prefix are parameters of its ProvisioningRequests.
PROVISIONING_PREFIX = "provreq.kueue.x-k8s.io/"

# Written by Kueue.
MANAGED = PREFIX + "managed"
ROLE_HASH = PREFIX + "role-hash"
POD_SUSPENDING_PARENT = PREFIX + "pod-suspending-parent"
STOPPING = PREFIX + "stopping"
JOB_UID = PREFIX + "job-uid"
WORKLOAD = PREFIX + "workload"
POD_SET = PREFIX + "podset"
POD_INDEX_OFFSET = PREFIX + "pod-index-offset"
JOB_OWNER_GVK = PREFIX + "job-owner-gvk"
JOB_OWNER_NAME = PREFIX + "job-owner-name"
COMPONENT_INDEX = PREFIX + "component-workload-index"
IS_GROUP_WORKLOAD = PREFIX + "is-group-workload"
SLICE_REPLACEMENT_FOR = PREFIX + "workload-slice-replacement-for"
SLICE_NAME = PREFIX + "workload-slice-name"
# Lets Kyu delete a pod by force when its node cannot be reached.
SAFE_TO_DELETE = PREFIX + "safe-to-forcefully-delete"

MULTI_KUEUE_ORIGIN = PREFIX + "multikueue-origin"
MULTI_KUEUE_ORIGIN_UID = PREFIX + "multikueue-origin-uid"

# Scheduling gates.
ADMISSION_GATE = PREFIX + "admission"
TOPOLOGY_GATE = PREFIX + "topology"
ELASTIC_GATE = PREFIX + "elastic-job"

MULTI_KUEUE = PREFIX + "multikueue"
DEFAULT_NAME = "default"

MAX_WORKLOAD_NAME = 253
HASH_LENGTH = 5
MAX_LABEL_VALUE = 63


def labels_of(obj: Json) -> dict[str, str]:
    return fields.json_at(obj, ("metadata", "labels"))


def annotations_of(obj: Json) -> dict[str, str]:
    return fields.json_at(obj, ("metadata", "annotations"))


def name_of(obj: Json) -> str:
    return fields.text_at(obj, ("metadata", "name"))


def uid_of(obj: Json) -> str:
    return fields.text_at(obj, ("metadata", "uid"))


def is_deleted(obj: Json) -> bool:
    """Return whether a deletion was requested. Finalizers and running processes may keep the object."""
    return bool(fields.text_at(obj, ("metadata", "deletionTimestamp")))


def queue_name(obj: Json) -> str:
    return labels_of(obj).get(QUEUE_NAME, "")


def identifier(obj: Json, key: str) -> str:
    """Return a name from an annotation, which may be longer than 63 characters, or else from a label."""
    return annotations_of(obj).get(key) or labels_of(obj).get(key, "")


def is_elastic(obj: Json) -> bool:
    return annotations_of(obj).get(ELASTIC_JOB) == "true"


def workload_name(kind: Kind, name: str, uid: str, *more: str) -> str:
    """Return the name of the Workload of an object: a readable part, and a hash of the owner's identity."""
    identity = [kind.kind, kind.group, name, uid, *more]
    digest = hashlib.sha1("\n".join(identity).encode(), usedforsecurity=False).hexdigest()[:HASH_LENGTH]
    readable = f"{kind.kind.lower()}-{name}"[: MAX_WORKLOAD_NAME - HASH_LENGTH - 1]
    return f"{readable}-{digest}"
