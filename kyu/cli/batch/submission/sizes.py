"""Warnings about requests that are valid, but most likely not meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kyu.api import quantity
from kyu.api.core import Node
from kyu.cli.connection import ServerConnection
from kyu.kube.errors import Forbidden

SMALLEST_MEMORY = 1024**2
MILLI = 10**6


def suspicious(requests: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each amount that looks like a slip."""
    for name, text in requests.items():
        amount = quantity.parse(text)
        if name == "memory" and 0 < amount.nanos < SMALLEST_MEMORY * quantity.NANO:
            digits = text.rstrip("mkKi")
            size = "less than a byte" if amount.nanos < quantity.NANO else f"{amount.nanos // quantity.NANO} bytes"
            yield f"--memory {text} is {size}; did you mean {digits}Mi?"
        elif name == "cpu" and amount.nanos == 0:
            yield f"--cpu {text}: the job needs no quota of CPU, so its queue does not limit such jobs"
        elif name == "cpu" and amount.nanos < MILLI:
            yield f"--cpu {text} is less than a thousandth of a core; did you mean {text.rstrip('nu')}m?"


def too_large(server: ServerConnection, requests: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each amount that no node has. Users who may not list nodes get none."""
    try:
        nodes = server.client.list(Node.KIND)
    except Forbidden:
        return
    offers = [(node.get("status") or {}).get("allocatable") or {} for node in nodes]
    for name, text in requests.items():
        wanted = quantity.amount(name, text)
        most = max((quantity.amount(name, offer.get(name, "0")) for offer in offers), default=wanted)
        if wanted > most:
            yield f"no node has {text} of {name}; the largest has {quantity.render(name, most)}"
