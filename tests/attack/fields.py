"""
Every field of every kind with strange values, on a server with its controllers in this process.

    python -m tests.attack.fields --seconds 60 --seed 1      random fields, for a while
    python -m tests.attack.fields --kind Job                 each field of one kind with each value

A request must not get a 5xx that Kubernetes would not give, nor use the processor for long. No controller may fail
because of an object that was accepted.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import random
import re
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kyu import app, log
from kyu.api.meta import Json
from kyu.server.api import Api
from kyu.server.registry import Resource
from kyu.server.schema.node import Schema
from tests.attack import seeds
from tests.attack.answers import is_fault
from tests.attack.strange import Place, least, places, put, random_place
from tests.support.servers import ask

LONGEST_SECONDS = 0.5
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
FORMS = (TABLE, "application/yaml", "application/vnd.kubernetes.protobuf,application/json")
FRAME = re.compile(r'File \\?"([^"\\]+)\\?", line (\d+)')
# Only administrators write the status of a node.
LEFT_OUT = "object left out kind=Node"
encode = msgspec.json.encode


@dataclass
class Findings:
    """The result of a run."""

    requests: int = 0
    accepted: int = 0
    by_class: dict[str, list[str]] = field(default_factory=dict)

    def note(self, class_: str, example: str) -> None:
        self.by_class.setdefault(class_, []).append(example)

    def all(self) -> list[str]:
        return [f"{len(found)} x {class_}: {found[0]}" for class_, found in self.by_class.items()]


def kind_of(what: str) -> str:
    return " ".join(what.split()[:2])


class Errors(logging.Handler):
    """A handler that takes the errors which the server logs."""

    def __init__(self, findings: Findings) -> None:
        super().__init__(logging.ERROR)
        self.now = ""
        self._findings = findings

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith(LEFT_OUT):
            return
        place = " ".join(FRAME.findall(text)[-1:][0]) if FRAME.search(text) else ""
        self._findings.note(f"log {text[:40]} {place}", f"{self.now}: {text[:200]} … {text[-200:]}")


class FieldFuzzer:
    def __init__(self, api: Api, findings: Findings, chance: random.Random) -> None:
        self._api = api
        self._findings = findings
        self._chance = chance
        self._number = itertools.count()

    def resources(self) -> list[Resource]:
        registry = self._api.registry
        found = [
            resource
            for group in registry.groups()
            for version in registry.versions(group)
            for resource in registry.resources(group, version)
        ]
        return [resource for resource in found if "create" in resource.verbs]

    async def attempt(self, resource: Resource, place: Place, value: Any) -> None:
        """Create an object with a strange value, look at it, change it, let controllers see it, and delete it."""
        name = f"f-{next(self._number)}"
        kind = resource.kind
        base = seeds.seed(kind, name) or {"metadata": {"name": name}, **_required(resource.schema)}
        body = put(base, place.path, value, resource.schema)
        body |= {"apiVersion": kind.api_version, "kind": kind.kind}
        where = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        where += f"/namespaces/{seeds.NAMESPACE}/{kind.plural}" if kind.namespaced else f"/{kind.plural}"
        what = f"{kind.api_version} {kind.kind} {place.path} = {str(value)[:60]!r}"
        code = await self._ask("POST", where, body, what)
        meta = body.get("metadata")
        if isinstance(meta, dict) and isinstance(meta.get("name"), str) and meta["name"]:
            name = meta["name"]
        if code == 201 and "get" in resource.verbs:
            self._findings.accepted += 1
            await self._follow(resource, f"{where}/{name}", what)
        elif code != 201 and place.path[0] == "status" and "status" in resource.subresources:
            await self._ask("POST", where, base, what)
            status = {"status": put({}, place.path, value, resource.schema).get("status")}
            await self._ask("PATCH", f"{where}/{name}/status", status, what, MERGE)
            await self._follow(resource, f"{where}/{name}", what)

    async def _follow(self, resource: Resource, path: str, what: str) -> None:
        for accept in FORMS:
            await self._ask("GET", path, None, what, accept=accept)
        kind = resource.kind
        applied = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"labels": {"a": "b"}}}
        await self._ask("PATCH", f"{path}?fieldManager=x&force=true", applied, what, APPLY)
        if "scale" in resource.subresources:
            await self._ask("GET", f"{path}/scale", None, what)
        if "status" in resource.subresources:
            await self._ask("PATCH", f"{path}/status", {"status": {}}, what, MERGE)
        for _ in range(self._chance.choice((2, 20))):
            await asyncio.sleep(0)
        await self._ask("PATCH", path, {"metadata": {"finalizers": None}}, what, MERGE)
        await self._ask("DELETE", path, {"propagationPolicy": "Background", "gracePeriodSeconds": 0}, what)

    async def _ask(
        self, method: str, path: str, body: Any, what: str, content_type: str = "application/json", accept: str = ""
    ) -> int:
        path = path.replace("\0", "%00").replace("#", "%23")
        sent = b"" if body is None else encode(body)
        headers = {"content_type": content_type, **({"accept": accept} if accept else {})}
        start = time.thread_time()
        try:
            response = await asyncio.wait_for(ask(self._api, method, path, sent, **headers), 60)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{last.filename}:{last.lineno} {last.name}"
            self._findings.note(f"{method} {type(error).__name__} {place}", f"{what}: {error!r}"[:300])
            return 500
        seconds = time.thread_time() - start
        self._findings.requests += 1
        text = response.body[:300].decode(errors="replace") if isinstance(response.body, bytes) else ""
        if is_fault(method, response.status, text):
            message = re.sub(r"[0-9]+", "N", text)[70:200]
            self._findings.note(f"{method} {response.status} {message}", f"{what}: {text!r}")
        if seconds > LONGEST_SECONDS:
            self._findings.note(f"slow {method} {kind_of(what)}", f"{what}: {seconds:.2f} s")
        return response.status


def _required(schema: Schema) -> Json:
    made: Json = least(schema)
    made.pop("metadata", None)
    if "spec" in schema.properties and "spec" not in made:
        made["spec"] = least(schema.properties["spec"])
    return made


def cases(fuzzer: FieldFuzzer, kind: str, chance: random.Random) -> Iterator[tuple[Resource, Place, Any]]:
    """Yield places and values in random order: all of one kind, or of each kind in turn without an end."""
    if kind:
        of_kind = [resource for resource in fuzzer.resources() if resource.kind.kind == kind]
        found = [(one, place, value) for one in of_kind for place in places(one.schema) for value in place.values]
        chance.shuffle(found)
        yield from found
        return
    resources = fuzzer.resources()
    while True:
        chance.shuffle(resources)
        for resource in resources:
            place = random_place(resource.schema, chance)
            yield resource, place, chance.choice(place.values)


async def run(folder: Path, seconds: float, seed: int, kind: str = "", most: int = 10**9) -> Findings:
    findings = Findings()
    handler = Errors(findings)
    logger = logging.getLogger("kyu")
    logger.addHandler(handler)
    chance = random.Random(seed)
    try:
        async with app.embedded(app.Settings(folder / "data", trust_users=True)) as running:
            fuzzer = FieldFuzzer(running.api, findings, chance)
            await seeds.prepare(running.api)
            until = time.monotonic() + seconds
            for resource, place, value in itertools.islice(cases(fuzzer, kind, chance), most):
                if time.monotonic() > until:
                    break
                handler.now = f"{resource.kind.kind} {place.path} {str(value)[:40]!r}"
                await fuzzer.attempt(resource, place, value)
            await asyncio.sleep(0.5)
    finally:
        logger.removeHandler(handler)
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", default="")
    args = parser.parse_args()
    log.start("CRITICAL")
    with tempfile.TemporaryDirectory() as folder:
        findings = asyncio.run(run(Path(folder), args.seconds, args.seed, args.kind))
    for found in findings.all():
        print(found)
    print(f"{findings.requests} requests, {findings.accepted} objects accepted, {len(findings.all())} findings")
    return bool(findings.all())


if __name__ == "__main__":
    raise SystemExit(main())
