"""
The Helm chart, generated from the objects of ``install/objects.py``.

A value of the chart takes the place of a marker in these objects. So the chart and ``kyu manifests`` cannot differ.

Called by: cli/admin/manifests.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kyu import __version__
from kyu.api import documents, pools, roles, workflows
from kyu.api.clusters import capacity
from kyu.api.definitions import crds
from kyu.api.meta import Json
from kyu.install import monitoring, objects
from kyu.install.admission import API_SERVICE, KINDS_OF_POLICIES, api_services
from kyu.install.workflows import policy_objects

# The values of the chart that stand in the objects, by the markers that they replace.
MARKERS = {
    "KYU-IMAGE": '"{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"',
    "KYU-PULL-POLICY": "{{ .Values.image.pullPolicy }}",
    "KYU-REPLICAS": "{{ .Values.replicas }}",
    "KYU-RESOURCES": "{{ toJson .Values.resources }}",
    "KYU-NODE-SELECTOR": "{{ toJson .Values.nodeSelector }}",
    "KYU-TOLERATIONS": "{{ toJson .Values.tolerations }}",
    "KYU-COMMAND": f'["kyu", "controller", "--webhook-bind-address=:{objects.WEBHOOK_PORT}"'
    '{{ if .Values.configuration }}, "--config=/etc/kyu/configuration.yaml"{{ end }}]',
}
KEEP = {"helm.sh/resource-policy": "keep"}
HAS_CRDS = "{{- if .Values.crds.install }}\n"
HAS_VISIBILITY = "{{- if .Values.visibility.enabled }}\n"
HAS_MONITOR = "{{- if .Values.serviceMonitor.enabled }}\n"
HAS_ALERTS = "{{- if .Values.prometheusRule.enabled }}\n"
HAS_DASHBOARD = "{{- if .Values.dashboard.enabled }}\n"
ELSE, END = "{{- else }}\n", "{{- end }}\n"
HAS_POLICIES = '{{- if eq (include "kyu.policies" .) "true" }}\n'

VALUES = """\
# The image with kyu on its path. The tag is the version of the chart unless it is given.
image:
  repository: kyu
  tag: ""
  pullPolicy: IfNotPresent
# One replica acts. The others follow the cluster, answer webhooks and take over.
replicas: 2
resources:
  requests: {cpu: 500m, memory: 512Mi}
nodeSelector: {}
tolerations: []
# MutatingAdmissionPolicies suspend queued jobs without a server. auto: where the cluster has them (Kubernetes 1.36).
policies: auto
crds:
  # The definitions of Kueue's kinds stay when the chart is uninstalled, and with them all queues and Workloads.
  install: true
visibility:
  # The APIServices of pending workloads. Kueue's have the same names: switch them off beside an installed Kueue.
  enabled: true
serviceMonitor:
  # Needs the Prometheus operator.
  enabled: false
prometheusRule:
  # Alerts on queues; needs the Prometheus operator.
  enabled: false
dashboard:
  # A ConfigMap with the dashboard, for the sidecar of Grafana's chart.
  enabled: false
# Kueue's Configuration (config.kueue.x-k8s.io/v1beta2), such as {integrations: {frameworks: [batch/job, pod]}}.
# The ConfigMap kueue-manager-config overrides it.
configuration: {}
"""

SWITCH: Json = {"type": "object", "additionalProperties": False, "properties": {"enabled": {"type": "boolean"}}}
SCHEMA: Json = {
    "$schema": "https://json-schema.org/draft-07/schema#",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "global": {"type": "object"},
        "image": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "repository": {"type": "string", "minLength": 1},
                "tag": {"type": "string"},
                "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
            },
        },
        "replicas": {"type": "integer", "minimum": 1},
        "resources": {"type": "object"},
        "nodeSelector": {"type": "object"},
        "tolerations": {"type": "array"},
        "policies": {"enum": ["auto", True, False]},
        "crds": {"type": "object", "additionalProperties": False, "properties": {"install": {"type": "boolean"}}},
        "visibility": SWITCH,
        "serviceMonitor": SWITCH,
        "prometheusRule": SWITCH,
        "dashboard": SWITCH,
        "configuration": {"type": "object"},
    },
}

NAMESPACE_CHECK = """\
{{- if ne .Release.Namespace "kueue-system" }}
{{- fail "Kyu runs in the namespace of Kueue: add --namespace kueue-system --create-namespace" }}
{{- end }}
"""

HELPERS = """\
{{- define "kyu.policies" -}}
{{- $has := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
{{- if eq (toString .Values.policies) "auto" }}{{ $has }}{{ else }}{{ .Values.policies }}{{ end }}
{{- end }}
"""

CONFIGURATION = """\
{{- if .Values.configuration }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: kyu-controller
  namespace: kueue-system
data:
  configuration.yaml: |
    apiVersion: config.kueue.x-k8s.io/v1beta2
    kind: Configuration
    {{- toYaml (omit .Values.configuration "apiVersion" "kind") | nindent 4 }}
{{- end }}
"""

NOTES = """\
Kyu runs in the namespace kueue-system. It waits while an installed Kueue holds the lease.

  kubectl -n kueue-system rollout status deployment/kyu-controller

Next: create a ResourceFlavor, a ClusterQueue and a LocalQueue, and label jobs with kueue.x-k8s.io/queue-name.
"""


def files() -> dict[str, str]:
    """Return the files of the chart by their paths in its folder."""
    custom = (*crds.definitions(), pools.definition(), *capacity.definitions(), workflows.definition())
    definitions = [with_annotations(each, KEEP) for each in custom]
    with_policies, without = objects.objects("KYU-IMAGE"), objects.objects("KYU-IMAGE", policies=False)
    hooks = [each for each in with_policies if is_admission(each)]
    alone = [each for each in without if is_admission(each)]
    apart = ("Namespace", API_SERVICE.kind)
    manager = [marked(each) for each in with_policies if not is_admission(each) and each["kind"] not in apart]
    return {
        "Chart.yaml": documents.render([chart()]).removeprefix("---\n"),
        "values.yaml": VALUES,
        "values.schema.json": msgspec.json.format(msgspec.json.encode(SCHEMA)).decode() + "\n",
        ".helmignore": "",
        "templates/_helpers.tpl": HELPERS,
        "templates/NOTES.txt": NOTES,
        "templates/crds.yaml": f"{HAS_CRDS}{template(definitions)}{END}",
        "templates/roles.yaml": template(roles.cluster_roles()),
        "templates/workflows.yaml": template(policy_objects()),
        "templates/manager.yaml": NAMESPACE_CHECK + template(manager),
        "templates/configuration.yaml": CONFIGURATION,
        "templates/admission.yaml": f"{HAS_POLICIES}{template(hooks)}{ELSE}{template(alone)}{END}",
        "templates/visibility.yaml": f"{HAS_VISIBILITY}{template(api_services(objects.NAMESPACE))}{END}",
        "templates/monitor.yaml": f"{HAS_MONITOR}{template([objects.service_monitor()])}{END}",
        "templates/alerts.yaml": f"{HAS_ALERTS}{template([monitoring.prometheus_rule()])}{END}",
        "templates/dashboard.yaml": f"{HAS_DASHBOARD}{template([monitoring.dashboard_map()])}{END}",
    }


def chart() -> Json:
    return {
        "apiVersion": "v2",
        "name": "kyu",
        "description": "Kyu: queues, quotas and fair sharing for jobs, with the API of Kueue",
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": ">=1.30.0-0",
    }


def is_admission(obj: Json) -> bool:
    return obj["kind"] in KINDS_OF_POLICIES


def with_annotations(obj: Json, annotations: Mapping[str, str]) -> Json:
    metadata = obj["metadata"]
    return {**obj, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **annotations}}}


def marked(obj: Json) -> Json:
    """Return the Deployment with markers for the values of the chart; other objects stay."""
    if obj["kind"] != "Deployment":
        return obj
    template = obj["spec"]["template"]
    (container,) = template["spec"]["containers"]
    settings = {"name": "configuration", "configMap": {"name": objects.NAME, "optional": True}}
    changed = {
        **container,
        "command": "KYU-COMMAND",
        "imagePullPolicy": "KYU-PULL-POLICY",
        "resources": "KYU-RESOURCES",
        "volumeMounts": [*container["volumeMounts"], {"name": "configuration", "mountPath": "/etc/kyu"}],
    }
    pod = {
        **template["spec"],
        "containers": [changed],
        "volumes": [*template["spec"]["volumes"], settings],
        "nodeSelector": "KYU-NODE-SELECTOR",
        "tolerations": "KYU-TOLERATIONS",
    }
    # The pods start again when the settings change.
    checksum = {"kyu.dev/configuration": "KYU-CHECKSUM"}
    metadata = {**template["metadata"], "annotations": checksum}
    return {**obj, "spec": {**obj["spec"], "replicas": "KYU-REPLICAS", "template": {"metadata": metadata, "spec": pod}}}


def template(found: list[Json]) -> str:
    """Render objects as a template. Braces of the objects themselves stay as they are."""
    text = documents.render(found).replace("{{", '{{ "{{" }}')
    checksum = "{{ toJson .Values.configuration | sha256sum }}"
    for marker, expression in {**MARKERS, "KYU-CHECKSUM": checksum}.items():
        text = text.replace(marker, expression)
    return text
