"""
Validation of a pod spec, outside of its containers: host names, DNS, gates and resource claims.

Kubernetes: pkg/apis/core/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import label, label_key, regex_error, subdomain
from kyu.server.validation.checks import ip_address, objections, one_of

SYSTEMS: Final = ("linux", "windows")
MAX_NAME_SERVERS: Final = 3
MAX_SEARCHES: Final = 32
_SEARCH_PART: Final = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SEARCH: Final = rf"{_SEARCH_PART}(\.{_SEARCH_PART})*"


def spec_faults(spec: Json, path: str) -> Iterator[FieldError]:
    for name in ("hostname", "subdomain"):
        if given := spec.get(name):
            yield from objections(f"{path}.{name}", given, _host_label)
    for name in ("serviceAccountName", "nodeName"):
        if given := spec.get(name):
            yield from objections(f"{path}.{name}", given, subdomain)
    system = (spec.get("os") or {}).get("name")
    yield from one_of(f"{path}.os", system, SYSTEMS)
    yield from _name_servers(spec, path)
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        yield from _alias(alias, f"{path}.hostAliases[{index}]")
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        given = gate.get("conditionType", "")
        here = f"{path}.readinessGates[{index}].conditionType"
        yield from objections(here, given, label_key)
    yield from _gates(spec.get("schedulingGates") or (), f"{path}.schedulingGates")
    yield from _claims(spec.get("resourceClaims") or (), f"{path}.resourceClaims")


def _host_label(text: str) -> Sequence[str]:
    return ["must not contain dots"] if "." in text else label(text)


def _name_servers(spec: Json, path: str) -> Iterator[FieldError]:
    config, path = spec.get("dnsConfig"), f"{path}.dnsConfig"
    if config is None:
        if spec.get("dnsPolicy") == "None":
            yield fields.required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
        return
    servers, searches = config.get("nameservers") or (), config.get("searches") or ()
    if spec.get("dnsPolicy") == "None" and not servers:
        detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        yield fields.required(f"{path}.nameservers", detail)
    if len(servers) > MAX_NAME_SERVERS:
        detail = f"must not have more than {MAX_NAME_SERVERS} nameservers"
        yield fields.invalid(f"{path}.nameservers", servers, detail)
    for index, server in enumerate(servers):
        yield from ip_address(f"{path}.nameservers[{index}]", server)
    if len(searches) > MAX_SEARCHES:
        yield fields.invalid(f"{path}.searches", searches, f"must not have more than {MAX_SEARCHES} search paths")
    for index, search in enumerate(searches):
        if search != "." and not re.fullmatch(_SEARCH, search.removesuffix(".")):
            words = (
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.',"
            )
            words += " and must start and end with an alphanumeric character"
            yield fields.invalid(f"{path}.searches[{index}]", search, regex_error(words, _SEARCH, "example.com"))
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            yield fields.required(f"{path}.options[{index}]", "must not be empty")


def _alias(alias: Json, path: str) -> Iterator[FieldError]:
    yield from ip_address(f"{path}.ip", alias.get("ip", ""))
    for index, name in enumerate(alias.get("hostnames") or ()):
        yield from objections(f"{path}.hostnames[{index}]", name, subdomain)


def _gates(gates: Sequence[Json], path: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        yield from objections(f"{path}[{index}]", name, label_key)
        if name in names:
            yield fields.duplicate(f"{path}[{index}]", name)
        names.add(name)


def _claims(claims: Sequence[Json], path: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, claim in enumerate(claims):
        here, name = f"{path}[{index}]", claim.get("name", "")
        yield from objections(f"{here}.name", name, label)
        if name in names:
            yield fields.duplicate(f"{here}.name", name)
        names.add(name)
        given = [source for source in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(source)]
        if not given:
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            yield fields.invalid(here, claim, detail)
        elif len(given) > 1:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            yield fields.invalid(here, claim, detail)
        for source in given:
            yield from objections(f"{here}.{source}", claim[source], subdomain)
