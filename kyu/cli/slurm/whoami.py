"""The name under which the server knows the caller."""

from __future__ import annotations

from kyu.api.meta import Kind
from kyu.cli.connection import ServerConnection

REVIEW = Kind("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False)


def name(server: ServerConnection) -> str:
    answer = server.client.create(REVIEW, {"metadata": {}})
    return str(answer["status"]["userInfo"]["username"])
