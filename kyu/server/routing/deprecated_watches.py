"""
The paths by which a watch was asked for before it became a parameter: ``/api/v1/watch/namespaces/N/pods``.

Kubernetes: apiserver/pkg/endpoints/installer.go still serves them.
"""

from __future__ import annotations

import msgspec

from kyu.server import errors
from kyu.server.exchange import Request


def as_usual(request: Request) -> Request:
    """Return a request of the old form in the present one, and other requests unchanged."""
    if "/watch/" not in request.path:
        return request
    words = request.path.strip("/").split("/")
    position = 2 if words[0] == "api" else 3
    if len(words) <= position + 1 or words[0] not in ("api", "apis") or words[position] != "watch":
        return request
    if request.method not in ("GET", "HEAD"):
        raise errors.method_not_allowed()
    start, rest = words[:position], words[position + 1 :]
    query = {**request.query, "watch": "true"}
    # A collection, or one object of it: three words more if it is in a namespace.
    depth = 2 if rest[0] == "namespaces" and len(rest) > 2 else 0
    if len(rest) == depth + 2:
        query["fieldSelector"] = f"metadata.name={rest.pop()}"
    return msgspec.structs.replace(request, path="/" + "/".join([*start, *rest]), query=query)
