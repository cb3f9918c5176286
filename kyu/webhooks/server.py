"""
The webhook server: reviews in, answers out, over HTTPS.

Kubernetes sends a review to a path per kind; Kueue's paths are understood, so its configurations keep working.

Called by: on_cluster.py.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kyu import log
from kyu.api.actions import View
from kyu.api.meta import Json
from kyu.server.exchange import Handler, Request, Response, json_response, text_response
from kyu.webhooks import admission, reviews
from kyu.webhooks.reviews import AdmissionReview, ConversionReview, ReviewRequest

Rule = Callable[[View, ReviewRequest], Json]


def webhook_pages(view: View, is_ready: Callable[[], bool]) -> Handler:
    """Return the handler of all reviews. Until the view is complete, admission reviews are answered with 503."""

    async def handle(request: Request) -> Response:
        if request.method != "POST":
            return text_response(405, "a review is sent by POST\n")
        try:
            if request.path == "/convert":
                review = msgspec.json.decode(request.body, type=ConversionReview)
                return json_response(200, admission.convert_objects(review.request))
            rule = rule_of(request.path)
            if rule is None:
                return text_response(404, "404 page not found\n")
            if not is_ready():
                return text_response(503, "the objects of the cluster are still being read\n")
            return json_response(200, answer(view, rule, msgspec.json.decode(request.body, type=AdmissionReview)))
        except msgspec.DecodeError as error:
            return text_response(400, f"no review: {error}\n")

    return handle


def rule_of(path: str) -> Rule | None:
    if path.startswith("/mutate-"):
        return admission.mutate
    return admission.validate if path.startswith("/validate-") else None


def answer(view: View, rule: Rule, review: AdmissionReview) -> Json:
    """Apply a rule. Refuse an object whose shape the rules cannot read."""
    try:
        return rule(view, review.request)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        request = review.request
        log.warning("review not understood", kind=request.kind.kind, namespace=request.namespace, error=repr(error))
        return reviews.deny(request, f"the object has no valid {request.kind.kind} shape: {error}")
