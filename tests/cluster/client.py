"""
A small synchronous client for the tests: what a person does with kubectl, without a process per request.

Objects are plain dictionaries, as JSON has them. The path of a kind is asked of the server (discovery) and remembered.
``until`` waits by watching, so a test continues at the moment of the change and never sleeps.

Called by: controlplane.py and the tests. It shares nothing with Kyu's own client, which is tried on the same server.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

# The one Any of this folder: an object of any kind, as JSON.
Manifest = dict[str, Any]
# A JSON patch is a list.
Body = Manifest | list[Manifest] | None

FIELD_MANAGER = "tests"
NOT_FOUND = 404
TOO_MANY_REQUESTS = 429
# So a server says that a kind whose definition has just changed is not served yet. Other refusals with this code stay.
NOT_SERVED_YET = "storage is (re)initializing"
RETRY_SECONDS = 0.2
# How long something that must come may take, on a machine that has other things to do.
PATIENCE_SECONDS = 180.0
DISCOVERY_SECONDS = 30.0


class ApiError(Exception):
    """The server refused; ``reason`` is Kubernetes's word for it, such as NotFound."""

    def __init__(self, status: int, body: str) -> None:
        self.status = status
        try:
            self.answer: Manifest = json.loads(body)
        except ValueError:
            self.answer = {"message": body}
        self.reason = str(self.answer.get("reason", status))
        super().__init__(f"{self.reason}: {self.answer.get('message', '')}")


class Timeout(Exception):
    """What was waited for did not happen; the message shows the last state."""


@dataclass(frozen=True, slots=True)
class Resource:
    """Where a kind is served."""

    prefix: str
    plural: str
    namespaced: bool


@dataclass(slots=True)
class Client:
    """Speaks to one server as one user. Not for several threads at once: it keeps one connection."""

    server: str
    context: ssl.SSLContext
    headers: dict[str, str] = field(default_factory=dict)
    resource_by_kind: dict[tuple[str, str], Resource] = field(default_factory=dict)
    connection: http.client.HTTPSConnection | None = None

    def get(self, api_version: str, kind: str, name: str, namespace: str = "default") -> Manifest:
        return self.request("GET", self.path(api_version, kind, name, namespace))

    def list(self, api_version: str, kind: str, namespace: str | None = None, selector: str = "") -> list[Manifest]:
        """All namespaces unless one is named."""
        path = self.path(api_version, kind, None, namespace)
        items: list[Manifest] = self.request("GET", f"{path}?{urlencode({'labelSelector': selector})}")["items"]
        return items

    def create(self, manifest: Manifest) -> Manifest:
        return self.request("POST", self.collection_of(manifest), manifest)

    def apply(self, manifests: Iterable[Manifest]) -> None:
        """Server-side apply: create, or change to what the manifest says."""
        query = urlencode({"fieldManager": FIELD_MANAGER, "force": "true"})
        for manifest in manifests:
            path = f"{self.collection_of(manifest)}/{manifest['metadata']['name']}?{query}"
            self.request("PATCH", path, manifest, "application/apply-patch+yaml")

    def patch(
        self,
        api_version: str,
        kind: str,
        name: str,
        change: Manifest,
        namespace: str = "default",
        subresource: str = "",
    ) -> Manifest:
        """A merge patch, of the object or of one of its subresources."""
        path = self.path(api_version, kind, name, namespace) + (f"/{subresource}" if subresource else "")
        return self.request("PATCH", path, change, "application/merge-patch+json")

    def delete(self, api_version: str, kind: str, name: str, namespace: str = "default") -> None:
        options = {"propagationPolicy": "Background"}
        self.request("DELETE", self.path(api_version, kind, name, namespace), options)

    def until(
        self,
        wanted: Callable[[Manifest], bool],
        api_version: str,
        kind: str,
        name: str,
        namespace: str = "default",
        seconds: float = PATIENCE_SECONDS,
    ) -> Manifest:
        """The object, as soon as it exists and is as wanted."""
        path = self.path(api_version, kind, None, namespace)
        latest: Manifest | None = None
        query = {"fieldSelector": f"metadata.name={name}"}
        for event in self.watch(path, query, seconds):
            latest = event["object"]
            if event["type"] != "DELETED" and wanted(latest):
                return latest
        raise Timeout(f"{kind} {namespace}/{name} is not as wanted after {seconds} s: {json.dumps(latest, indent=1)}")

    def until_all(
        self,
        wanted: Callable[[Manifest], bool],
        api_version: str,
        kind: str,
        names: Iterable[str],
        namespace: str = "default",
        seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Returns as soon as each of these objects was seen as wanted; one watch for all of them."""
        remaining = set(names)
        if not remaining:
            return
        for event in self.watch(self.path(api_version, kind, None, namespace), {}, seconds):
            if event["type"] != "DELETED" and wanted(event["object"]):
                remaining.discard(event["object"]["metadata"]["name"])
            if not remaining:
                return
        raise Timeout(f"{kind} {', '.join(sorted(remaining))} not as wanted after {seconds} s")

    def until_event(
        self, wanted: Callable[[Manifest], bool], path: str, query: Mapping[str, str], seconds: float = PATIENCE_SECONDS
    ) -> Manifest:
        """The object of the first event that is as wanted; the state of now counts as events."""
        latest: Manifest | None = None
        for event in self.watch(path, query, seconds):
            latest = event["object"]
            if wanted(event):
                return latest
        raise Timeout(f"nothing as wanted at {path} after {seconds} s; the last was {json.dumps(latest, indent=1)}")

    def watch(self, path: str, query: Mapping[str, str], seconds: float) -> Iterator[Manifest]:
        """
        Events, beginning with one per object that is there; ends when the time is over.

        The objects are listed: a watch alone begins with what the server remembers, which may be older than the last
        answer that this client had.
        """
        deadline = time.monotonic() + seconds
        listed = self.request("GET", f"{path}?{urlencode(query)}")
        yield from ({"type": "ADDED", "object": item} for item in listed["items"])
        version = listed["metadata"]["resourceVersion"]
        while (left := deadline - time.monotonic()) > 0:
            for event in self.follow(path, {**query, "resourceVersion": version}, left):
                version = event["object"]["metadata"]["resourceVersion"]
                yield event

    def follow(self, path: str, query: Mapping[str, str], seconds: float) -> Iterator[Manifest]:
        """What happens after a version, until the time is over or the server closes, which may be at once."""
        parameters = {**query, "watch": "true", "timeoutSeconds": str(max(1, round(seconds)))}
        with closing(self.connect(seconds + 5)) as connection:
            connection.request("GET", f"{path}?{urlencode(parameters)}", headers=self.headers)
            response = connection.getresponse()
            if response.status >= 400:
                refusal = ApiError(response.status, response.read().decode())
                if not is_not_served_yet(refusal):
                    raise refusal
                time.sleep(RETRY_SECONDS)
                return
            for line in response:
                event: Manifest = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiError(event["object"]["code"], json.dumps(event["object"]))
                yield event

    def path(self, api_version: str, kind: str, name: str | None, namespace: str | None) -> str:
        resource = self.resource(api_version, kind)
        scope = f"/namespaces/{namespace}" if resource.namespaced and namespace else ""
        return f"{resource.prefix}{scope}/{resource.plural}" + (f"/{name}" if name else "")

    def collection_of(self, manifest: Manifest) -> str:
        namespace = manifest["metadata"].get("namespace", "default")
        return self.path(manifest["apiVersion"], manifest["kind"], None, namespace)

    def resource(self, api_version: str, kind: str) -> Resource:
        """Where the kind is served; discovery tells it a little after its definition says that it is established."""
        deadline = time.monotonic() + DISCOVERY_SECONDS
        while (api_version, kind) not in self.resource_by_kind:
            self.discover(api_version)
            if time.monotonic() > deadline:
                raise ApiError(NOT_FOUND, f"{api_version} has no kind {kind}")
            if (api_version, kind) not in self.resource_by_kind:
                time.sleep(RETRY_SECONDS)
        return self.resource_by_kind[api_version, kind]

    def discover(self, api_version: str) -> None:
        """Remember where the kinds of a version are served; none are as long as the version is not known."""
        prefix = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            entries = self.request("GET", prefix)["resources"]
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return
        for entry in entries:
            if "/" not in entry["name"]:
                found = Resource(prefix, entry["name"], entry["namespaced"])
                self.resource_by_kind[api_version, entry["kind"]] = found

    def request(self, verb: str, path: str, body: Body = None, content_type: str = "application/json") -> Manifest:
        answer: Manifest = json.loads(self.text(verb, path, body, content_type))
        return answer

    def text(self, verb: str, path: str, body: Body = None, content_type: str = "application/json") -> str:
        """The body of the answer, as soon as the kind is served."""
        data = None if body is None else json.dumps(body).encode()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            status, text = self.exchange(verb, path, data, content_type)
            if status < 400:
                return text
            refusal = ApiError(status, text)
            if not is_not_served_yet(refusal) or time.monotonic() > deadline:
                raise refusal
            time.sleep(RETRY_SECONDS)

    def exchange(self, verb: str, path: str, data: bytes | None, content_type: str) -> tuple[int, str]:
        """Code and body of the answer. The connection is made anew when the server closed the idle one."""
        fresh = self.connection is None
        self.connection = self.connection or self.connect(60)
        try:
            self.connection.request(verb, path, data, {"Content-Type": content_type, **self.headers})
            response = self.connection.getresponse()
            return response.status, response.read().decode()
        except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError):
            self.close()
            if fresh:
                raise
            return self.exchange(verb, path, data, content_type)
        except BaseException:
            self.close()
            raise

    def connect(self, timeout: float) -> http.client.HTTPSConnection:
        address = urlsplit(self.server)
        assert address.hostname is not None
        return http.client.HTTPSConnection(address.hostname, address.port, context=self.context, timeout=timeout)

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None


def is_not_served_yet(refusal: ApiError) -> bool:
    return refusal.status == TOO_MANY_REQUESTS and NOT_SERVED_YET in str(refusal)


def client(server: str, authority: Path, certificate: Path, key: Path) -> Client:
    context = ssl.create_default_context(cafile=str(authority))
    context.load_cert_chain(certificate, key)
    return Client(server, context)


def client_of_token(server: str, authority: str, token: str) -> Client:
    """A client of a server that knows its users by tokens; ``authority`` is the certificate as PEM text."""
    context = ssl.create_default_context(cadata=authority)
    return Client(server, context, {"Authorization": f"Bearer {token}"})


def condition(manifest: Manifest, kind: str) -> Manifest:
    """The condition of this type, or an empty one."""
    conditions: list[Manifest] = manifest.get("status", {}).get("conditions") or []
    return next((entry for entry in conditions if entry["type"] == kind), {})


def has(kind: str, status: str = "True") -> Callable[[Manifest], bool]:
    """For ``until``: the condition of this type has this status."""
    return lambda manifest: condition(manifest, kind).get("status") == status
