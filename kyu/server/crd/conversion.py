"""
Validation of ``spec.conversion`` of a CustomResourceDefinition.

Kubernetes: apiextensions-apiserver/pkg/apis/apiextensions/validation, apiserver/pkg/util/webhook
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import dns_1035_label, subdomain
from kyu.server.validation.checks import PORT_RANGE, objections

STRATEGIES: Final = ("None", "Webhook")
# The versions of a ConversionReview that Kubernetes can send.
REVIEW_VERSIONS: Final = ("v1", "v1beta1")
URL_FORM: Final = "desired format: https://host[/path]"


def faults(conversion: Json | None) -> Iterator[FieldError]:
    if conversion is None:
        return
    strategy, webhook, path = conversion.get("strategy", ""), conversion.get("webhook") or {}, "spec.conversion"
    client, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    if not strategy:
        yield fields.required(f"{path}.strategy")
    elif strategy not in STRATEGIES:
        yield fields.not_supported(f"{path}.strategy", strategy, STRATEGIES)
    elif strategy == "Webhook":
        yield from _client_faults(client, f"{path}.webhookClientConfig")
        yield from _version_faults(versions, f"{path}.conversionReviewVersions")
    else:
        given = {"webhookClientConfig": client is not None, "conversionReviewVersions": bool(versions)}
        detail = "should not be set when strategy is not set to Webhook"
        yield from (fields.forbidden(f"{path}.{name}", detail) for name, is_given in given.items() if is_given)


def _client_faults(client: Json | None, path: str) -> Iterator[FieldError]:
    if client is None:
        yield fields.required(path, "required when strategy is set to Webhook")
        return
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield fields.required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _url_faults(url, f"{path}.url")
    else:
        yield from _service_faults(service or {}, f"{path}.service")


def _url_faults(url: str, path: str) -> Iterator[FieldError]:
    address = urlsplit(url)
    if address.scheme != "https":
        yield fields.invalid(path, address.scheme, f"'https' is the only allowed URL scheme; {URL_FORM}")
    if not address.netloc:
        yield fields.invalid(path, address.netloc, f"host must be specified; {URL_FORM}")
    if address.username is not None:
        yield fields.invalid(path, address.username, "user information is not permitted in the URL")
    if address.fragment:
        yield fields.invalid(path, address.fragment, "fragments are not permitted in the URL")
    if address.query:
        yield fields.invalid(path, address.query, "query parameters are not permitted in the URL")


def _service_faults(service: Json, path: str) -> Iterator[FieldError]:
    yield from (fields.required(f"{path}.{name}") for name in ("name", "namespace") if not service.get(name))
    port, place = service.get("port", 443), service.get("path")
    if not 1 <= port <= 65535:
        yield fields.invalid(f"{path}.port", port, f"port is not valid: {PORT_RANGE}")
    if place is not None:
        yield from _place_faults(place, f"{path}.path")


def _place_faults(place: str, path: str) -> Iterator[FieldError]:
    if not place.startswith("/"):
        yield fields.invalid(path, place, "must start with a '/'")
    if place in ("", "/"):
        return
    for index, step in enumerate(place[1:].removesuffix("/").split("/")):
        if not step:
            yield fields.invalid(path, place, f"segment[{index}] may not be empty")
        else:
            yield from (fields.invalid(path, place, f"segment[{index}]: {wrong}") for wrong in subdomain(step))


def _version_faults(versions: list[str], path: str) -> Iterator[FieldError]:
    if not versions:
        yield fields.required(path)
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            yield fields.invalid(f"{path}[{index}]", version, "duplicate version")
        else:
            yield from objections(f"{path}[{index}]", version, dns_1035_label)
    if not set(versions) & set(REVIEW_VERSIONS):
        yield fields.invalid(path, versions, f"must include at least one of {', '.join(REVIEW_VERSIONS)}")
