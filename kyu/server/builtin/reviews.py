"""The kinds of reviews, which are answered and never stored. auth/reviews.py has the answers."""

from __future__ import annotations

from kyu.api.meta import Kind

AUTHORIZATION = "authorization.k8s.io"
AUTHENTICATION = "authentication.k8s.io"

KINDS = (
    Kind(AUTHORIZATION, "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False),
    Kind(AUTHORIZATION, "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False),
    Kind(AUTHORIZATION, "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews"),
    Kind(AUTHORIZATION, "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", namespaced=False),
    Kind(AUTHENTICATION, "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False),
    Kind(AUTHENTICATION, "v1", "TokenReview", "tokenreviews", namespaced=False),
)
