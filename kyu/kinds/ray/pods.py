"""
The pods of a Ray cluster: one head and groups of workers, and of a RayJob the pod that runs its entrypoint.

Head and workers are groups alike; a group knows its pod set, its place in the object and how many pods it has. All that
Kyu says about Ray is said by going through the groups once. In embedded mode a container without a command starts Ray.

KubeRay: docs on RayCluster configuration and RayJob.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from kyu.api.meta import Json
from kyu.kinds import fields, metadata
from kyu.kinds.pods import Blueprint
from kyu.kinds.templates import with_command

HEAD, SUBMITTER = "head", "submitter"
GCS_PORT = 6379
# Options of ``ray start`` that connect workers to the head; users cannot set them.
SET_BY_KYU = ("head", "address", "port", "block")
SUBMITTER_PATH: fields.Path = ("spec", "submitterPodTemplate")

# Containers that KubeRay puts beside Ray, with what they ask for unless the user says otherwise.
AUTOSCALER: Json = {
    "name": "autoscaler",
    "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"cpu": "500m", "memory": "512Mi"}},
}
SUBMITTING: Json = {
    "name": "ray-job-submitter",
    "resources": {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
}


class RayGroup(msgspec.Struct, frozen=True):
    """Pods of a cluster that have one template: the head, or a group of workers."""

    pod_set: str
    path: fields.Path
    body: Json
    count: int = 1

    @property
    def is_head(self) -> bool:
        return self.path[-1] == "headGroupSpec"

    @property
    def name(self) -> str:
        """As Ray knows it."""
        return "headgroup" if self.is_head else fields.text_at(self.body, ("groupName",))

    def pod_name(self, cluster: str, index: int) -> str:
        return head_name(cluster) if self.is_head else f"{cluster}-{self.pod_set}-worker-{index}"

    def start_command(self, head_address: str) -> list[str]:
        role = f"--head --port={GCS_PORT}" if self.is_head else f"--address={head_address}:{GCS_PORT}"
        chosen = fields.json_at(self.body, ("rayStartParams",)).items()
        options = "".join(f" --{name}={value}" for name, value in chosen if name not in SET_BY_KYU)
        return ["/bin/sh", "-c", f"ray start {role} --block{options}"]


def groups_of(obj: Json, cluster: fields.Path) -> list[RayGroup]:
    """Yield the head, then the workers."""
    head: fields.Path = (*cluster, "headGroupSpec")
    workers: fields.Path = (*cluster, "workerGroupSpecs")
    found = [RayGroup(HEAD, head, fields.json_at(obj, head))]
    for position, body in enumerate(fields.list_at(obj, workers)):
        pods_each = max(1, fields.int_at(body, ("numOfHosts",), 1))
        count = fields.int_at(body, ("replicas",), 1) * pods_each
        found.append(RayGroup(fields.text_at(body, ("groupName",)).lower(), (*workers, position), body, count))
    return found


def head_name(cluster: str) -> str:
    return f"{cluster}-head"


def cluster_pods(cluster: str, groups: Sequence[RayGroup], head_address: str) -> Iterator[Blueprint]:
    env = environment(head_address, RAY_CLUSTER_NAME=cluster, RAY_IP=head_address)
    for group in groups:
        labels = {
            "ray.io/cluster": cluster,
            "ray.io/group": group.name,
            "ray.io/node-type": HEAD if group.is_head else "worker",
            "ray.io/is-ray-node": "yes",
        }
        template = with_command(fields.json_at(group.body, ("template",)), group.start_command(head_address))
        for index in range(group.count):
            name = group.pod_name(cluster, index)
            yield Blueprint(name, group.pod_set, index, template, labels=labels, env=env, hostname=name)


def submitter_pod(obj: Json, head_address: str) -> Blueprint:
    """Return the pod that runs the entrypoint as the driver, beside the cluster."""
    name = metadata.name_of(obj)
    command = ["/bin/sh", "-c", fields.text_at(obj, ("spec", "entrypoint"))]
    template = with_command(submitter_template(obj), command)
    template = fields.with_value(template, ("spec", "restartPolicy"), "Never")
    env = environment(head_address, RAY_JOB_SUBMISSION_ID=f"{name}-submission")
    return Blueprint(f"{name}-{SUBMITTER}", SUBMITTER, 0, template, env=env)


def submitter_template(obj: Json) -> Json:
    """Return the user's template, or that of KubeRay: the image of the head, and little else."""
    own = fields.json_at(obj, SUBMITTER_PATH)
    if own:
        return own
    image = fields.text_at(
        obj, ("spec", "rayClusterSpec", "headGroupSpec", "template", "spec", "containers", 0, "image")
    )
    container = {**SUBMITTING, "image": image} if image else SUBMITTING
    return {"spec": {"containers": [container], "restartPolicy": "Never"}}


def environment(head_address: str, **more: str) -> dict[str, str]:
    return {"RAY_ADDRESS": f"{head_address}:{GCS_PORT}", **more}


def with_containers(template: Json, added: Sequence[Json]) -> Json:
    if not added:
        return template
    present = fields.list_at(template, ("spec", "containers"))
    return fields.with_value(template, ("spec", "containers"), [*present, *added])
