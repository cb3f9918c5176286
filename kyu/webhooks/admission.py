"""
The rules of admission on a cluster: default and validate jobs and Kueue's own objects.

They are those of the embedded server: ``plans/job/webhook.py`` for jobs, ``api/rules`` for Kueue's kinds.

Kueue: pkg/webhooks, pkg/controller/jobframework/base_webhook.go
"""

from __future__ import annotations

from collections.abc import Sequence

from kyu.api import convert, rules
from kyu.api.actions import View
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.workflows import Workflow
from kyu.plans.job import webhook
from kyu.plans.workflows import webhook as workflow_webhook
from kyu.webhooks import reviews
from kyu.webhooks.reviews import ConversionRequest, ReviewRequest, allow


def mutate(view: View, request: ReviewRequest) -> Json:
    """Answer a mutating review: the queue, the suspension, the gates and the finalizers of a new object."""
    if request.object is None or request.sub_resource:
        return allow(request)
    given = complete(request, request.object)
    old = None if request.old_object is None else complete(request, request.old_object)
    if is_kueue(request):
        changed = rules.prepare_create(given, view.configuration.gates) if old is None else given
    else:
        changed = webhook.admit(view, given, old).obj
    return allow(request, list(reviews.json_patch(given, changed)))


def validate(view: View, request: ReviewRequest) -> Json:
    """Answer a validating review with all errors of the object, or of its change."""
    if request.object is None:
        return allow(request)
    faults = find_faults(view, request, request.object)
    return reviews.deny(request, reviews.aggregate([str(fault) for fault in faults])) if faults else allow(request)


def find_faults(view: View, request: ReviewRequest, given: Json) -> Sequence[FieldError]:
    if (given.get("metadata") or {}).get("deletionTimestamp"):
        # An object that is being deleted may always lose its finalizers.
        return ()
    obj = complete(request, given)
    old = None if request.old_object is None else complete(request, request.old_object)
    if request.kind.kind == Workflow.KIND.kind and request.kind.group == Workflow.KIND.group:
        return workflow_webhook.find_errors(view, obj, old, on_cluster=True)
    if is_kueue(request):
        return rules.review(obj, old, view.configuration.gates)
    return () if request.sub_resource else webhook.admit(view, obj, old).errors


def convert_objects(request: ConversionRequest) -> Json:
    """Answer a conversion review. One object that cannot be converted fails the review, as Kubernetes demands."""
    try:
        return reviews.converted(
            request, [convert.convert(obj, request.desired_api_version) for obj in request.objects]
        )
    except convert.ConversionError as error:
        return reviews.not_converted(request, str(error))


def is_kueue(request: ReviewRequest) -> bool:
    return request.kind.group == convert.GROUP


def complete(request: ReviewRequest, obj: Json) -> Json:
    """Return the object with its kind and namespace. A new object may lack the namespace of its request."""
    metadata = obj.get("metadata") or {}
    if request.namespace and not metadata.get("namespace"):
        metadata = {**metadata, "namespace": request.namespace}
    typed = {"apiVersion": request.kind.api_version, "kind": request.kind.kind}
    return {**typed, **obj, "metadata": metadata}
