"""
What a CustomResourceDefinition may say about the conversion between its versions.

Called by: crd_rules.py. Kubernetes: apiextensions-apiserver/pkg/apis/apiextensions/validation,
apiserver/pkg/util/webhook
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server.builtin_names import dns_1035_label, subdomain

STRATEGIES: Final = ("None", "Webhook")
# The versions of a ConversionReview that the server can send.
REVIEW_VERSIONS: Final = ("v1", "v1beta1")
URL_FORM: Final = "desired format: https://host[/path]"


def validate(conversion: Json | None) -> list[FieldError]:
    strategy, webhook = (conversion or {}).get("strategy", ""), (conversion or {}).get("webhook") or {}
    path = "spec.conversion"
    if conversion is None:
        return []
    if not strategy:
        return [fields.required(f"{path}.strategy")]
    if strategy not in STRATEGIES:
        return [fields.not_supported(f"{path}.strategy", strategy, STRATEGIES)]
    client, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    if strategy == "Webhook":
        found = _validate_client(client, f"{path}.webhookClientConfig")
        return found + _validate_versions(versions, f"{path}.conversionReviewVersions")
    given = {"webhookClientConfig": client is not None, "conversionReviewVersions": bool(versions)}
    detail = "should not be set when strategy is not set to Webhook"
    return [fields.forbidden(f"{path}.{name}", detail) for name, is_given in given.items() if is_given]


def _validate_client(client: Json | None, path: str) -> list[FieldError]:
    if client is None:
        return [fields.required(path, "required when strategy is set to Webhook")]
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        return [fields.required(path, "exactly one of url or service is required")]
    return _validate_url(url, f"{path}.url") if url is not None else _validate_service(service or {}, f"{path}.service")


def _validate_url(url: str, path: str) -> list[FieldError]:
    address = urlsplit(url)
    found: list[FieldError] = []
    if address.scheme != "https":
        detail = f"'https' is the only allowed URL scheme; {URL_FORM}"
        found.append(fields.invalid(path, address.scheme, detail))
    if not address.netloc:
        found.append(fields.invalid(path, address.netloc, f"host must be specified; {URL_FORM}"))
    if address.username is not None:
        found.append(fields.invalid(path, address.username, "user information is not permitted in the URL"))
    if address.fragment:
        found.append(fields.invalid(path, address.fragment, "fragments are not permitted in the URL"))
    if address.query:
        found.append(fields.invalid(path, address.query, "query parameters are not permitted in the URL"))
    return found


def _validate_service(service: Json, path: str) -> list[FieldError]:
    found = [fields.required(f"{path}.{name}") for name in ("name", "namespace") if not service.get(name)]
    port, place = service.get("port", 443), service.get("path")
    if not 1 <= port <= 65535:
        detail = "port is not valid: must be between 1 and 65535, inclusive"
        found.append(fields.invalid(f"{path}.port", port, detail))
    return found + (_validate_place(place, f"{path}.path") if place is not None else [])


def _validate_place(place: str, path: str) -> list[FieldError]:
    found: list[FieldError] = []
    if not place.startswith("/"):
        found.append(fields.invalid(path, place, "must start with a '/'"))
    if place in ("", "/"):
        return found
    for index, step in enumerate(place[1:].removesuffix("/").split("/")):
        if not step:
            found.append(fields.invalid(path, place, f"segment[{index}] may not be empty"))
        else:
            found += [fields.invalid(path, place, f"segment[{index}]: {wrong}") for wrong in subdomain(step)]
    return found


def _validate_versions(versions: list[str], path: str) -> list[FieldError]:
    if not versions:
        return [fields.required(path)]
    found: list[FieldError] = []
    for index, version in enumerate(versions):
        if version in versions[:index]:
            found.append(fields.invalid(f"{path}[{index}]", version, "duplicate version"))
        else:
            found += [fields.invalid(f"{path}[{index}]", version, wrong) for wrong in dns_1035_label(version)]
    if not set(versions) & set(REVIEW_VERSIONS):
        detail = f"must include at least one of {', '.join(REVIEW_VERSIONS)}"
        found.append(fields.invalid(path, versions, detail))
    return found
