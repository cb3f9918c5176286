"""
Rules for ``metadata.name`` and ``metadata.generateName``.

Kubernetes: apimachinery/pkg/api/validation/generic.go
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from kyu.api.names import label, path_segment, subdomain

# (name, is it a generateName) -> objections
NameRule: TypeAlias = Callable[[str, bool], Sequence[str]]


def name_is_subdomain(name: str, is_prefix: bool) -> Sequence[str]:
    return subdomain(_completed(name) if is_prefix else name)


def name_is_label(name: str, is_prefix: bool) -> Sequence[str]:
    return label(_completed(name) if is_prefix else name)


def name_is_path_segment(name: str, is_prefix: bool) -> Sequence[str]:
    return path_segment(name)


def _completed(prefix: str) -> str:
    """Return a generateName that ends in a letter: a random suffix follows a trailing dash."""
    return prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix
