"""
Rules for AdmissionCheck, MultiKueueCluster and MultiKueueConfig.

Kueue: the CEL rules of these kinds.
"""

from __future__ import annotations

from collections.abc import Iterator

from kyu.api.config.features import FeatureGates
from kyu.api.errors import FieldError, broken_rule, duplicate
from kyu.api.kueue import AdmissionCheck, MultiKueueCluster, MultiKueueConfig


def validate_admission_check(
    check: AdmissionCheck, old: AdmissionCheck | None, gates: FeatureGates
) -> Iterator[FieldError]:
    before = old.spec.controller_name if old is not None else ""
    if before and check.spec.controller_name != before:
        yield broken_rule("spec.controllerName", "field is immutable")


def validate_multi_kueue_cluster(
    cluster: MultiKueueCluster, old: MultiKueueCluster | None, gates: FeatureGates
) -> Iterator[FieldError]:
    source = cluster.spec.cluster_source
    if (source.kube_config is None) == (source.cluster_profile_ref is None):
        yield broken_rule("spec.clusterSource", "exactly one of kubeConfig and clusterProfileRef must be set")


def validate_multi_kueue_config(
    config: MultiKueueConfig, old: MultiKueueConfig | None, gates: FeatureGates
) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, name in enumerate(config.spec.clusters):
        if name in seen:
            yield duplicate(f"spec.clusters[{index}]", name)
        seen.add(name)
