"""
Validation of the volumes of a pod and of volume claims.

Kubernetes: pkg/apis/core/validation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from kyu.api import errors as fields
from kyu.api import quantity
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import subdomain
from kyu.server.builtin.pods.env import FILE_PATHS, amount_faults, field_faults
from kyu.server.validation.checks import one_of

# (source, path) -> errors
Check: TypeAlias = Callable[[Json, str], Iterator[FieldError]]

HOST_PATH_TYPES: Final = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES: Final = ("Block", "Filesystem")
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
MODE: Final = "must be a number between 0 and 0777 (octal), both inclusive"
_is_iscsi_name: Final = re.compile(
    r"(iqn\.\d{4}-\d\d\.[^:]+(:.+)?|eui\.[0-9A-Fa-f]{16}|naa\.[0-9A-Fa-f]{16,32})"
).fullmatch


# The order in which Kubernetes checks sources: of two, it rejects the later one.
SOURCE_ORDER: Final = (
    "emptyDir", "hostPath", "gitRepo", "secret", "nfs", "iscsi", "configMap", "downwardAPI", "persistentVolumeClaim",
    "projected", "csi", "ephemeral", "image",
)  # fmt: skip


def source_rank(name: str) -> int:
    return SOURCE_ORDER.index(name) if name in SOURCE_ORDER else len(SOURCE_ORDER)


def volume_faults(volume: Json, path: str) -> Iterator[FieldError]:
    """Check the first source of a volume. rules.py rejects others."""
    for name, source in volume.items():
        if check := _SOURCES.get(name):
            yield from check(source, f"{path}.{name}")
            return


def _required(source: Json, path: str, *names: str) -> Iterator[FieldError]:
    yield from (fields.required(f"{path}.{name}") for name in names if not source.get(name))


def _empty_dir(source: Json, path: str) -> Iterator[FieldError]:
    if quantity.parse(source.get("sizeLimit", 0)).nanos < 0:
        yield fields.forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")


def _host_path(source: Json, path: str) -> Iterator[FieldError]:
    given, kind = source.get("path", ""), source.get("type") or ""
    if not given:
        yield fields.required(f"{path}.path")
        return
    yield from _no_back_steps(given, f"{path}.path")
    if kind not in HOST_PATH_TYPES:
        yield fields.not_supported(f"{path}.type", kind, HOST_PATH_TYPES)


def _no_back_steps(given: str, path: str) -> Iterator[FieldError]:
    if ".." in given.split("/"):
        yield fields.invalid(path, given, "must not contain '..'")


def relative_path_faults(given: str, path: str) -> Iterator[FieldError]:
    if given.startswith("/"):
        yield fields.invalid(path, given, "must be a relative path")
    yield from _no_back_steps(given, path)


def _file_path(given: str, path: str) -> Iterator[FieldError]:
    yield from relative_path_faults(given, path)
    if given.startswith("..") and not given.startswith("../"):
        yield fields.invalid(path, given, "must not start with '..'")


def _mode(source: Json, name: str, path: str) -> Iterator[FieldError]:
    mode = source.get(name)
    if mode is not None and not 0 <= mode <= 0o777:
        yield fields.invalid(f"{path}.{name}", mode, MODE)


def _named_by(name: str) -> Check:
    """Return a check that requires only this field."""
    return lambda source, path: _required(source, path, name)


def _files_of(name: str) -> Check:
    """Return a check of a source with files of the object in this field."""

    def check(source: Json, path: str) -> Iterator[FieldError]:
        yield from _required(source, path, name)
        yield from _mode(source, "defaultMode", path)
        for index, item in enumerate(source.get("items") or ()):
            here = f"{path}.items[{index}]"
            yield from _required(item, here, "key", "path")
            yield from _file_path(item.get("path", ""), f"{here}.path")
            yield from _mode(item, "mode", here)

    return check


def _downward(source: Json, path: str) -> Iterator[FieldError]:
    yield from _mode(source, "defaultMode", path)
    for item in source.get("items") or ():
        yield from _required(item, path, "path")
        yield from _file_path(item.get("path", ""), f"{path}.path")
        field, amount = item.get("fieldRef"), item.get("resourceFieldRef")
        if field is not None:
            yield from field_faults(field, f"{path}.fieldRef", FILE_PATHS)
            if amount is not None:
                detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
                yield fields.invalid(path, "resource", detail)
        elif amount is not None:
            yield from amount_faults(amount, f"{path}.resourceFieldRef", is_file=True)
        else:
            yield fields.required(path, "one of fieldRef and resourceFieldRef is required")
        yield from _mode(item, "mode", path)


def _projected(source: Json, path: str) -> Iterator[FieldError]:
    yield from _mode(source, "defaultMode", path)
    seen: set[str] = set()
    for index, part in enumerate(source.get("sources") or ()):
        here, given = f"{path}.sources[{index}]", [name for name, value in part.items() if value is not None]
        for name in given:
            if check := _PARTS.get(name):
                yield from check(part[name], f"{here}.{name}")
            for item in part[name].get("items") or ():
                if item.get("path") in seen:
                    yield fields.invalid(path, part[name].get("name", ""), "conflicting duplicate paths")
                seen.add(item.get("path"))
        if len(given) > 1:
            yield fields.forbidden(here, "may not specify more than 1 volume type per source")


def _nfs(source: Json, path: str) -> Iterator[FieldError]:
    yield from _required(source, path, "server", "path")
    if not source.get("path", "").startswith("/"):
        yield fields.invalid(f"{path}.path", source.get("path", ""), "must be an absolute path")


def _iscsi(source: Json, path: str) -> Iterator[FieldError]:
    yield from _required(source, path, "targetPortal", "iqn")
    name = source.get("iqn", "")
    if name and not _is_iscsi_name(name):
        start = "" if name.startswith(("iqn", "eui", "naa")) else " starting with iqn, eui, or naa"
        yield fields.invalid(f"{path}.iqn", name, f"must be valid format{start}")


def _driver(source: Json, path: str) -> Iterator[FieldError]:
    name = source.get("driver", "")
    if not name:
        yield fields.required(f"{path}.driver")
    else:
        yield from (fields.invalid(f"{path}.driver", name, text) for text in subdomain(name.lower()))


def _image(source: Json, path: str) -> Iterator[FieldError]:
    yield from _required(source, path, "reference")
    yield from one_of(f"{path}.pullPolicy", source.get("pullPolicy"), PULL_POLICIES)


def _ephemeral(source: Json, path: str) -> Iterator[FieldError]:
    path = f"{path}.volumeClaimTemplate"
    template = source.get("volumeClaimTemplate")
    if template is None:
        yield fields.required(path)
        return
    for name in template.get("metadata") or ():
        if name not in ("labels", "annotations"):
            yield fields.forbidden(f"{path}.metadata.{name}", "cannot be set")
    yield from claim_faults(template.get("spec") or {}, f"{path}.spec")


def claim_faults(spec: Json, path: str) -> Iterator[FieldError]:
    """Check the spec of a volume claim."""
    modes = spec.get("accessModes") or ()
    if not modes:
        yield fields.required(f"{path}.accessModes", "at least 1 access mode is required")
    for mode in modes:
        yield from one_of(f"{path}.accessModes", mode, ACCESS_MODES)
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        yield fields.required(f"{path}.resources[storage]")
    elif quantity.parse(size).nanos <= 0:
        yield fields.invalid(f"{path}.resources[storage]", size, "must be greater than zero")
    yield from one_of(f"{path}.volumeMode", spec.get("volumeMode"), VOLUME_MODES)


def validate_claim(claim: Json) -> Iterator[FieldError]:
    yield from claim_faults(claim.get("spec") or {}, "spec")


_SOURCES: Final[dict[str, Check]] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "configMap": _files_of("name"),
    "secret": _files_of("secretName"),
    "downwardAPI": _downward,
    "projected": _projected,
    "persistentVolumeClaim": _named_by("claimName"),
    "ephemeral": _ephemeral,
    "nfs": _nfs,
    "iscsi": _iscsi,
    "csi": _driver,
    "image": _image,
    "gitRepo": _named_by("repository"),
}
_PARTS: Final[dict[str, Check]] = {
    "configMap": _files_of("name"),
    "secret": _files_of("name"),
    "downwardAPI": _downward,
}
