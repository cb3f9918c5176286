"""
What a name, a label and a key may look like, with the words in which Kubernetes refuses others.

Each function returns the objections to one text; none means that it is fine.

Called by: builtin_metadata.py, builtin_*.py, selectors.py. Kubernetes: apimachinery/pkg/util/validation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

# (text, is a prefix of a name) -> objections
NameRule: TypeAlias = Callable[[str, bool], list[str]]

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_DNS_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_CONFIG_KEY: Final = "[-._a-zA-Z0-9]+"
_is_label: Final = re.compile(_LABEL).fullmatch
_is_subdomain: Final = re.compile(_SUBDOMAIN).fullmatch
_is_key: Final = re.compile(_KEY).fullmatch
_ENDS: Final = "must start and end with an alphanumeric character"


def regex_error(text: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {shown}regex used for validation is '{pattern}')"


def subdomain(text: str) -> list[str]:
    found = ["must be no more than 253 characters"] if len(text.encode()) > 253 else []
    if not _is_subdomain(text):
        words = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and"
        found.append(regex_error(f"{words} {_ENDS}", _SUBDOMAIN, "example.com"))
    return found


def wildcard(text: str) -> list[str]:
    """A subdomain of which the first part is every name."""
    pattern = rf"\*\.{_SUBDOMAIN}"
    found = ["must be no more than 253 characters"] if len(text.encode()) > 253 else []
    if not re.fullmatch(pattern, text):
        words = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must"
        words += " consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character"
        found.append(regex_error(words, pattern, "*.example.com"))
    return found


def label(text: str) -> list[str]:
    found = ["must be no more than 63 characters"] if len(text.encode()) > 63 else []
    if not _is_label(text):
        if _is_subdomain(text):
            found.append("must not contain dots")
        else:
            words = f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and {_ENDS}"
            found.append(regex_error(words, _LABEL, "my-name", "123-abc"))
    return found


def dns_1035_label(text: str) -> list[str]:
    found = ["must be no more than 63 characters"] if len(text.encode()) > 63 else []
    if not re.fullmatch(_DNS_1035, text):
        words = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic"
        words += " character, and end with an alphanumeric character"
        found.append(regex_error(words, _DNS_1035, "my-name", "abc-123"))
    return found


@lru_cache(maxsize=4096)
def label_key(text: str) -> tuple[str, ...]:
    """A name with an optional domain before it: ``example.com/queue-name``. The same few keys come again and again."""
    words = f"must consist of alphanumeric characters, '-', '_' or '.', and {_ENDS}"
    form = regex_error(words, _KEY, "MyName", "my.name", "123-abc")
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
    elif len(name.encode()) > 63:
        found.append("name part must be no more than 63 bytes")
    if not _is_key(name):
        found.append(f"name part {form}")
    return tuple(found)


def label_value(text: str) -> list[str]:
    found = ["must be no more than 63 bytes"] if len(text.encode()) > 63 else []
    if text and not _is_key(text):
        words = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and"
        found.append(regex_error(f"{words} {_ENDS}", f"({_KEY})?", "MyValue", "my_value", "12345"))
    return found


def port_name(text: str) -> list[str]:
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


def config_key(text: str) -> list[str]:
    """A key of a ConfigMap or Secret, which can be the name of a file."""
    found = ["must be no more than 253 characters"] if len(text.encode()) > 253 else []
    if not re.fullmatch(_CONFIG_KEY, text):
        words = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        found.append(regex_error(words, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name"))
    if text in (".", ".."):
        found.append(f"must not be '{text}'")
    elif text.startswith(".."):
        found.append("must not start with '..'")
    return found


def path_segment(text: str) -> list[str]:
    """What can stand in a URL: all that RBAC and some others ask of a name."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{part}'" for part in ("/", "%") if part in text]


def masked(text: str) -> str:
    """A prefix may end in a dash: the random part follows."""
    return text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text


def name_is_subdomain(text: str, is_prefix: bool) -> list[str]:
    return subdomain(masked(text) if is_prefix else text)


def name_is_label(text: str, is_prefix: bool) -> list[str]:
    return label(masked(text) if is_prefix else text)


def name_is_path_segment(text: str, is_prefix: bool) -> list[str]:
    return path_segment(text)
