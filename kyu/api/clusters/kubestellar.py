"""
The names of KubeStellar that Kyu reads and writes: labels, kinds, and the admission check of kueue-ks.

KubeStellar: api/control/v1alpha1; kueue-ks: pkg/controller
"""

from __future__ import annotations

from kyu.api.meta import Kind

GROUP = "control.kubestellar.io"
# The cluster that runs an object. KubeStellar copies the object there.
CLUSTER_LABEL = "kubestellar.io/cluster"
OLD_CLUSTER_LABEL = "mcc.kubestellar.io/cluster"
CLUSTER_LABELS = (CLUSTER_LABEL, OLD_CLUSTER_LABEL)
# The cluster that a user asked for with that label. It has no effect before quota is reserved.
WANTED_CLUSTER = "kyu.dev/wanted-cluster"
# An annotation of a job whose templates carry additions for its cluster: the name of the Workload that they are from.
# KubeStellar copies it, so it means something only together with that Workload.
PLACED_WORKLOAD = "kyu.dev/placed-workload"
# The controllerName of AdmissionChecks for this way of dispatching.
CONTROLLER = "kubestellar.io/ks-kueue"

BINDING_POLICY = Kind(GROUP, "v1alpha1", "BindingPolicy", "bindingpolicies", namespaced=False)
COMBINED_STATUS = Kind(GROUP, "v1alpha1", "CombinedStatus", "combinedstatuses")
CUSTOM_TRANSFORM = Kind(GROUP, "v1alpha1", "CustomTransform", "customtransforms", namespaced=False)
