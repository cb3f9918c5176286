"""
What counts as a legal name: DNS labels and subdomains, label keys and values, qualified names of resources.

Each function returns what is wrong, in words, or an empty text.

Used by: rules/, config_file.py, server. Kubernetes: apimachinery util/validation
"""

from __future__ import annotations

import re

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)

_ALPHANUMERIC_ENDS = "must start and end with a letter or digit"


def why_not_dns_label(text: str) -> str:
    if len(text) > 63:
        return "must be no more than 63 characters"
    if not _DNS_LABEL.fullmatch(text):
        return f"must consist of lower case letters, digits and '-', and {_ALPHANUMERIC_ENDS}"
    return ""


def why_not_dns_subdomain(text: str) -> str:
    if len(text) > 253:
        return "must be no more than 253 characters"
    if not _DNS_SUBDOMAIN.fullmatch(text):
        return f"must consist of lower case letters, digits, '-' and '.', and each part {_ALPHANUMERIC_ENDS}"
    return ""


def why_not_qualified_name(text: str) -> str:
    """A label key, an annotation key or the name of a resource: an optional DNS prefix with '/', and a name."""
    prefix, slash, name = text.rpartition("/")
    if slash and not prefix:
        return "the part before '/' must not be empty"
    if slash and (reason := why_not_dns_subdomain(prefix)):
        return f"the part before '/' {reason}"
    if not name:
        return "the name must not be empty"
    if len(name) > 63:
        return "the name must be no more than 63 characters"
    if not _QUALIFIED.fullmatch(name):
        return f"the name must consist of letters, digits, '-', '_' and '.', and {_ALPHANUMERIC_ENDS}"
    return ""


def why_not_label_value(text: str) -> str:
    if len(text) > 63:
        return "must be no more than 63 characters"
    if text and not _QUALIFIED.fullmatch(text):
        return f"must consist of letters, digits, '-', '_' and '.', and {_ALPHANUMERIC_ENDS}"
    return ""
