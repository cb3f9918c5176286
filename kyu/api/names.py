"""
Rules for names: DNS labels and subdomains, label keys and values, names of ports, keys of ConfigMaps.

Each rule returns the objections to a text in the words of Kubernetes, and an empty tuple if the text is valid. The
``why_not_`` functions return the same as one text.

Kubernetes: apimachinery/pkg/util/validation
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

# Patterns of whole texts.
LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN: Final = rf"{LABEL}(\.{LABEL})*"
_DNS_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
QUALIFIED_NAME: Final = f"({SUBDOMAIN}/)?({KEY})"
_CONFIG_KEY: Final = "[-._a-zA-Z0-9]+"
_is_label: Final = re.compile(LABEL).fullmatch
_is_subdomain: Final = re.compile(SUBDOMAIN).fullmatch
_is_key: Final = re.compile(KEY).fullmatch
_ENDS: Final = "must start and end with an alphanumeric character"


def regex_error(text: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {shown}regex used for validation is '{pattern}')"


def _too_long(text: str, limit: int, unit: str = "characters") -> list[str]:
    return [f"must be no more than {limit} {unit}"] if len(text.encode()) > limit else []


def subdomain(text: str) -> Sequence[str]:
    found = _too_long(text, 253)
    if not _is_subdomain(text):
        words = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and"
        found.append(regex_error(f"{words} {_ENDS}", SUBDOMAIN, "example.com"))
    return found


def wildcard(text: str) -> Sequence[str]:
    """Check a subdomain that begins with ``*.``."""
    pattern, found = rf"\*\.{SUBDOMAIN}", _too_long(text, 253)
    if not re.fullmatch(pattern, text):
        words = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must"
        words += " consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character"
        found.append(regex_error(words, pattern, "*.example.com"))
    return found


def label(text: str) -> Sequence[str]:
    """Check a DNS label, not the key or value of a label."""
    found = _too_long(text, 63)
    if not _is_label(text):
        if _is_subdomain(text):
            found.append("must not contain dots")
        else:
            words = f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and {_ENDS}"
            found.append(regex_error(words, LABEL, "my-name", "123-abc"))
    return found


def dns_1035_label(text: str) -> Sequence[str]:
    found = _too_long(text, 63)
    if not re.fullmatch(_DNS_1035, text):
        words = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic"
        words += " character, and end with an alphanumeric character"
        found.append(regex_error(words, _DNS_1035, "my-name", "abc-123"))
    return found


# Objects repeat a few keys.
@lru_cache(maxsize=4096)
def label_key(text: str) -> tuple[str, ...]:
    """Check a qualified name, such as ``example.com/queue-name``: a label key, an annotation key, a resource."""
    words = f"must consist of alphanumeric characters, '-', '_' or '.', and {_ENDS}"
    form = regex_error(words, KEY, "MyName", "my.name", "123-abc")
    *prefixes, name = text.split("/")
    if len(prefixes) > 1:
        suffix = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return (f"a valid label key {form}{suffix}",)
    found: list[str] = []
    for prefix in prefixes:
        objections = subdomain(prefix) if prefix else ["must be non-empty"]
        found += [f"prefix part {objection}" for objection in objections]
    if not name:
        found.append("name part must be non-empty")
    else:
        found += [f"name part {objection}" for objection in _too_long(name, 63, "bytes")]
    if not _is_key(name):
        found.append(f"name part {form}")
    return tuple(found)


def label_value(text: str) -> Sequence[str]:
    found = _too_long(text, 63, "bytes")
    if text and not _is_key(text):
        words = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and"
        found.append(regex_error(f"{words} {_ENDS}", f"({KEY})?", "MyValue", "my_value", "12345"))
    return found


def port_name(text: str) -> Sequence[str]:
    found = ["must be no more than 15 characters"] if len(text) > 15 else []
    if not re.fullmatch("[-a-z0-9]+", text):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", text):
        found.append("must contain at least one letter (a-z)")
    if "--" in text:
        found.append("must not contain consecutive hyphens")
    if text and "-" in (text[0], text[-1]):
        found.append("must not begin or end with a hyphen")
    return found


def config_key(text: str) -> Sequence[str]:
    """Check a key of a ConfigMap or Secret, which becomes the name of a file."""
    found = _too_long(text, 253)
    if not re.fullmatch(_CONFIG_KEY, text):
        words = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        found.append(regex_error(words, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name"))
    if text in (".", ".."):
        found.append(f"must not be '{text}'")
    elif text.startswith(".."):
        found.append("must not start with '..'")
    return found


def path_segment(text: str) -> Sequence[str]:
    """Check a name that may hold anything that a URL path allows, as those of RBAC objects."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{part}'" for part in ("/", "%") if part in text]


def why_not_dns_label(text: str) -> str:
    return "; ".join(label(text))


def why_not_dns_subdomain(text: str) -> str:
    return "; ".join(subdomain(text))


def why_not_qualified_name(text: str) -> str:
    return "; ".join(label_key(text))


def why_not_label_value(text: str) -> str:
    return "; ".join(label_value(text))
