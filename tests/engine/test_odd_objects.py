"""
Stored objects may be odd: half-written statuses, references to nothing, quotas of nothing or of everything.

Whatever is stored, a decision comes out of it, twice the same, and the books are right afterwards.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kyu.api import codec
from kyu.api.config import features, file
from kyu.api.meta import Json
from kyu.cli.admin.decide import rehearse
from kyu.engine import options
from kyu.engine.options import Options
from kyu.engine.state import State
from tests.support.builders import API, at, stamp

NAMES = st.sampled_from(("a", "b", "c"))
FLAVORS = st.sampled_from(("x", "y", "missing"))
RESOURCES = ("cpu", "memory", "pods", "example.com/gpu")
AMOUNTS = st.sampled_from(("0", "1", "2", "500m", "7", "3Gi", "9E", "99999999999999999999E", "-1"))
TIMES = st.integers(0, 100).map(stamp)
LEVELS = ("block", "kubernetes.io/hostname")


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({}, optional=fields)


def quotas() -> st.SearchStrategy[Json]:
    limits = {"borrowingLimit": AMOUNTS, "lendingLimit": AMOUNTS}
    return st.fixed_dictionaries({"nominalQuota": AMOUNTS}, optional=limits)


@st.composite
def resource_groups(draw: st.DrawFn) -> list[Json]:
    """Flavors and resources are in one group at most, as everywhere; quotas may be missing."""
    covered = draw(st.lists(st.sampled_from(RESOURCES), min_size=1, max_size=3, unique=True))
    names = draw(st.lists(FLAVORS, min_size=1, max_size=2, unique=True))
    flavors = [{"name": name, "resources": [{"name": r, **draw(quotas())} for r in covered]} for name in names]
    return [{"coveredResources": covered, "flavors": flavors}]


POLICIES = st.sampled_from(("Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any"))
CLUSTER_QUEUES = optional(
    cohortName=NAMES,
    namespaceSelector=st.sampled_from(({}, {"matchLabels": {"team": "none"}})),
    queueingStrategy=st.sampled_from(("StrictFIFO", "BestEffortFIFO")),
    resourceGroups=resource_groups(),
    preemption=optional(
        withinClusterQueue=POLICIES,
        reclaimWithinCohort=POLICIES,
        borrowWithinCohort=optional(policy=POLICIES, maxPriorityThreshold=st.integers(-2, 2)),
    ),
    flavorFungibility=optional(whenCanBorrow=st.just("TryNextFlavor"), whenCanPreempt=st.just("MayStopSearch")),
    fairSharing=optional(weight=st.sampled_from(("0", "1", "2"))),
    stopPolicy=st.sampled_from(("None", "Hold", "HoldAndDrain")),
    admissionScope=st.just({"admissionMode": "UsageBasedAdmissionFairSharing"}),
    admissionChecksStrategy=st.just({"admissionChecks": [{"name": "nobody"}]}),
)
COHORTS = optional(parentName=NAMES, resourceGroups=resource_groups(), fairSharing=optional(weight=st.just("0")))
TOPOLOGY_REQUESTS = optional(
    required=st.sampled_from(LEVELS),
    preferred=st.sampled_from((*LEVELS, "rack")),
    unconstrained=st.booleans(),
    podSetGroupName=st.just("together"),
    podSetSliceRequiredTopology=st.sampled_from(LEVELS),
    podSetSliceSize=st.integers(0, 3),
)


@st.composite
def pod_sets(draw: st.DrawFn) -> list[Json]:
    found = []
    for name in draw(st.sampled_from((("main",), ("main", "other")))):
        requests = draw(st.dictionaries(st.sampled_from(RESOURCES), AMOUNTS, max_size=3))
        spec: Json = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
        extra = draw(optional(minCount=st.integers(0, 3), topologyRequest=TOPOLOGY_REQUESTS))
        found.append({"name": name, "count": draw(st.integers(0, 4)), "template": {"spec": spec}, **extra})
    return found


@st.composite
def conditions(draw: st.DrawFn) -> list[Json]:
    types = ("QuotaReserved", "Admitted", "Evicted", "Preempted", "Requeued", "Finished", "PodsReady")
    reasons = st.sampled_from(("Preempted", "PodsReadyTimeout", "AdmissionCheck", "NodeFailures", "OnHold"))
    return [
        {
            "type": type_,
            "status": draw(st.sampled_from(("True", "True", "False"))),
            "reason": draw(reasons),
            "message": "",
            "lastTransitionTime": draw(TIMES),
        }
        for type_ in draw(st.lists(st.sampled_from(types), unique=True, max_size=4))
    ]


ASSIGNMENTS = st.fixed_dictionaries(
    {"name": st.sampled_from(("main", "other", "unknown"))},
    optional={
        "count": st.integers(0, 4),
        "flavors": st.dictionaries(st.sampled_from(RESOURCES), FLAVORS, max_size=2),
        "resourceUsage": st.dictionaries(st.sampled_from(RESOURCES), AMOUNTS, max_size=2),
        "delayedTopologyRequest": st.sampled_from(("Pending", "Ready")),
        "topologyAssignment": st.sampled_from(
            [
                {
                    "levels": ["kubernetes.io/hostname"],
                    "slices": [
                        {
                            "domainCount": 1,
                            "valuesPerLevel": [{"universal": node}],
                            "podCounts": {"universal": count},
                        }
                    ],
                }
                for node in ("node-0", "gone")
                for count in (1, 3)
            ]
        ),
    },
)
STATUSES = optional(
    conditions=conditions(),
    admission=st.fixed_dictionaries(
        {"clusterQueue": NAMES}, optional={"podSetAssignments": st.lists(ASSIGNMENTS, max_size=2)}
    ),
    reclaimablePods=st.just([{"name": "main", "count": 9}]),
    unhealthyNodes=st.sampled_from(([{"name": "node-0"}], [{"name": "gone"}])),
    admissionChecks=st.sampled_from(
        [
            [{"name": "nobody", "state": state, "message": "", "lastTransitionTime": stamp(1)}]
            for state in ("Ready", "Retry")
        ]
    ),
    requeueState=optional(count=st.integers(0, 3), requeueAt=TIMES),
)
ANNOTATIONS = optional(
    **{
        "kueue.x-k8s.io/workload-slice-replacement-for": st.sampled_from(("default/w0", "default/w1", "nonsense", "")),
        "kueue.x-k8s.io/priority-boost": st.sampled_from(("3", "many")),
        "kueue.x-k8s.io/admission-gated-by": st.just("x.example.com/gate"),
        "kueue.x-k8s.io/workload-allowed-resource-flavor": st.sampled_from(("x", "missing")),
    }
)


@st.composite
def workloads(draw: st.DrawFn, number: int) -> Json:
    metadata: Json = {
        "name": f"w{number}",
        "namespace": draw(st.sampled_from(("default", "default", "nowhere"))),
        "uid": f"uid-{number}",
        "creationTimestamp": draw(TIMES),
        "annotations": draw(ANNOTATIONS),
    }
    if draw(st.booleans()):
        owner = draw(st.sampled_from(("Pod", "Workload")))
        metadata["ownerReferences"] = [
            {"apiVersion": API, "kind": owner, "name": "w0", "uid": "uid-0", "controller": True}
        ]
    spec = {
        "podSets": draw(pod_sets()),
        **draw(
            optional(
                queueName=NAMES,
                priority=st.integers(-2, 2),
                active=st.booleans(),
                preemptionGates=st.just([{"name": "closed.example.com/gate"}]),
            )
        ),
    }
    return {"apiVersion": API, "kind": "Workload", "metadata": metadata, "spec": spec, "status": draw(STATUSES)}


@st.composite
def clusters(draw: st.DrawFn) -> list[Json]:
    found: list[Json] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}]
    for name in ("x", "y"):
        spec = draw(st.sampled_from(({}, {"topologyName": "t"}, {"topologyName": "missing"})))
        found.append({"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec})
    levels = [{"nodeLabel": level} for level in LEVELS]
    found.append({"apiVersion": API, "kind": "Topology", "metadata": {"name": "t"}, "spec": {"levels": levels}})
    for number in range(2):
        labels = {"block": "b", "kubernetes.io/hostname": f"node-{number}"}
        status = {"allocatable": {"cpu": "4", "pods": "3"}, "conditions": [{"type": "Ready", "status": "True"}]}
        metadata = {"name": f"node-{number}", "labels": labels}
        found.append({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})
    found += [
        {"apiVersion": API, "kind": "Cohort", "metadata": {"name": name}, "spec": draw(COHORTS)}
        for name in draw(st.lists(NAMES, unique=True))
    ]
    for name in ("a", "b", "c"):
        spec = draw(CLUSTER_QUEUES)
        found.append({"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec})
        local = {"name": name, "namespace": "default"}
        found.append(
            {"apiVersion": API, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": draw(NAMES)}}
        )
    return found + [draw(workloads(number)) for number in range(draw(st.integers(1, 5)))]


@st.composite
def engine_options(draw: st.DrawFn) -> Options:
    gates = draw(st.dictionaries(st.sampled_from([gate.name for gate in features.GATES]), st.booleans(), max_size=6))
    configuration: Json = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    configuration |= draw(
        optional(
            fairSharing=st.just({"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}),
            admissionFairSharing=st.just({"usageHalfLifeTime": "1m", "usageSamplingInterval": "1m"}),
            waitForPodsReady=st.just({"blockAdmission": True}),
            featureGates=st.just(gates),
        )
    )
    try:
        return options.from_configuration(file.load(configuration).configuration)
    except file.InvalidConfiguration:
        return Options()


def load(manifests: list[Json], known: Options) -> State:
    """What cannot be decoded is refused there, with its field; the rest is put in."""
    state = State(known)
    for manifest in manifests:
        try:
            obj = codec.decode(manifest)
        except codec.DecodeError:
            continue
        state.put(obj)
    return state


@settings(max_examples=settings().max_examples // 2)
@given(clusters(), engine_options(), st.sampled_from((1, 3, None)))
def test_odd_objects_are_decided_about(manifests: list[Json], known: Options, cycles: int | None) -> None:
    state = load(manifests, known)
    first = rehearse(state, at(200), cycles)
    state.check()
    assert first == rehearse(load(manifests, known), at(200), cycles)
