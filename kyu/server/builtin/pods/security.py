"""
Validation of security contexts, and of fields that belong to another operating system.

Kubernetes: pkg/apis/core/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import subdomain
from kyu.server.validation.checks import objections, one_of

ID_RANGE: Final = "must be between 0 and 2147483647, inclusive"
PROFILE_TYPES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
PROC_MOUNTS: Final = ("Default", "Unmasked")
CHANGE_POLICIES: Final = ("Always", "OnRootMismatch")
GROUP_POLICIES: Final = ("Merge", "Strict")
LABEL_POLICIES: Final = ("Recursive",)
_SYSCTL: Final = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
_IPC_SYSCTLS: Final = ("kernel.shm", "kernel.msg", "fs.mqueue.")
# Fields of Linux, in the security context of a pod and of a container.
_LINUX_POD: Final = (
    "appArmorProfile", "seLinuxOptions", "fsGroup", "fsGroupChangePolicy", "sysctls", "runAsUser", "runAsGroup",
    "supplementalGroups", "seccompProfile", "supplementalGroupsPolicy", "seLinuxChangePolicy",
)  # fmt: skip
_LINUX_CONTAINER: Final = (
    "appArmorProfile", "seLinuxOptions", "capabilities", "readOnlyRootFilesystem", "privileged",
    "allowPrivilegeEscalation", "procMount", "seccompProfile", "runAsUser", "runAsGroup",
)  # fmt: skip
_LINUX_SPEC: Final = ("hostPID", "hostIPC", "hostUsers", "shareProcessNamespace")


def pod_faults(spec: Json, path: str) -> Iterator[FieldError]:
    """Check the security context of a pod."""
    context, here = spec.get("securityContext") or {}, f"{path}.securityContext"
    yield from _host_faults(spec, path)
    if not context:
        return
    yield from _ids(context, here, "runAsUser", "runAsGroup", "fsGroup")
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        if not 0 <= group < 2**31:
            yield fields.invalid(f"{here}.supplementalGroups[{index}]", group, ID_RANGE)
    yield from _sysctls(spec, context.get("sysctls") or (), f"{here}.sysctls")
    yield from one_of(f"{here}.fsGroupChangePolicy", context.get("fsGroupChangePolicy"), CHANGE_POLICIES)
    yield from one_of(f"{here}.supplementalGroupsPolicy", context.get("supplementalGroupsPolicy"), GROUP_POLICIES)
    yield from one_of(f"{here}.seLinuxChangePolicy", context.get("seLinuxChangePolicy"), LABEL_POLICIES)
    yield from _shared(context, here)
    if (context.get("windowsOptions") or {}).get("hostProcess") and not spec.get("hostNetwork"):
        detail = "hostNetwork must be true if pod contains any hostProcess containers"
        yield fields.invalid(f"{path}.hostNetwork", False, detail)


def container_faults(context: Json, path: str, spec: Json) -> Iterator[FieldError]:
    yield from _ids(context, path, "runAsUser", "runAsGroup")
    mount = context.get("procMount")
    yield from one_of(f"{path}.procMount", mount, PROC_MOUNTS)
    if mount == "Unmasked" and spec.get("hostUsers") is not False:
        yield fields.invalid(f"{path}.procMount", mount, "`hostUsers` must be false to use `Unmasked`")
    yield from _shared(context, path)
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            yield fields.invalid(path, context, detail)
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            yield fields.invalid(path, context, detail)
    yield from _foreign(context, path, (spec.get("os") or {}).get("name", ""), _LINUX_CONTAINER)


def _host_faults(spec: Json, path: str) -> Iterator[FieldError]:
    """Check the namespaces of the host: a pod with a user namespace cannot share the others."""
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield fields.invalid(f"{path}.securityContext.shareProcessNamespace", True, detail)
    if spec.get("hostUsers") is False:
        for name, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
            if spec.get(name):
                yield fields.forbidden(f"{path}.{shown}", "when `hostUsers` is false")
    system = (spec.get("os") or {}).get("name", "")
    if system == "windows":
        for name in _LINUX_SPEC:
            if spec.get(name) is not None:
                yield fields.forbidden(f"{path}.{name}", "cannot be set for a windows pod")
    yield from _foreign(spec.get("securityContext") or {}, f"{path}.securityContext", system, _LINUX_POD)


def _foreign(context: Json, path: str, system: str, linux: tuple[str, ...]) -> Iterator[FieldError]:
    if system == "windows":
        for name in linux:
            if context.get(name) is not None:
                yield fields.forbidden(f"{path}.{name}", "cannot be set for a windows pod")
    elif system == "linux" and context.get("windowsOptions") is not None:
        yield fields.forbidden(f"{path}.windowsOptions", "windows options cannot be set for a linux pod")


def _ids(context: Json, path: str, *names: str) -> Iterator[FieldError]:
    for name in names:
        given = context.get(name)
        if given is not None and not 0 <= given < 2**31:
            yield fields.invalid(f"{path}.{name}", given, ID_RANGE)


def _shared(context: Json, path: str) -> Iterator[FieldError]:
    """Check the fields of both kinds of security contexts."""
    if (profile := context.get("seccompProfile")) is not None:
        yield from _profile(profile, f"{path}.seccompProfile", "seccomp")
    if (profile := context.get("appArmorProfile")) is not None:
        yield from _profile(profile, f"{path}.appArmorProfile", "AppArmor")
    if name := (context.get("windowsOptions") or {}).get("gmsaCredentialSpecName"):
        here = f"{path}.windowsOptions.gmsaCredentialSpecName"
        yield from objections(here, name, subdomain)


def _profile(profile: Json, path: str, what: str) -> Iterator[FieldError]:
    kind, local = profile.get("type", ""), profile.get("localhostProfile")
    here = f"{path}.localhostProfile"
    if not kind:
        yield fields.required(f"{path}.type", f"type is required when {path.rpartition('.')[2]} is set")
    elif kind not in PROFILE_TYPES:
        yield fields.not_supported(f"{path}.type", kind, PROFILE_TYPES)
    elif kind != "Localhost":
        if local is not None:
            shown: Any = profile if what == "seccomp" else local
            yield fields.invalid(here, shown, f"can only be set when {what} type is Localhost")
    elif not local:
        yield fields.required(here, f"must be set when {what} type is Localhost")
    elif what == "AppArmor" and local != local.strip():
        yield fields.invalid(here, local, "must not be padded with whitespace")
    elif what == "seccomp" and local.startswith("/"):
        yield fields.invalid(here, local, "must be a relative path")


def _sysctls(spec: Json, sysctls: list[Json] | tuple[()], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        here, name = f"{path}[{index}].name", sysctl.get("name", "")
        if not name:
            yield fields.required(here)
        elif len(name) > 253 or not re.fullmatch(_SYSCTL, name):
            yield fields.invalid(here, name, f"must have at most 253 characters and match regex {_SYSCTL}")
        elif name in seen:
            yield fields.duplicate(here, name)
        elif spec.get("hostNetwork") and name.startswith("net."):
            yield fields.invalid(here, name, "may not be specified when 'hostNetwork' is true")
        elif spec.get("hostIPC") and name.startswith(_IPC_SYSCTLS):
            yield fields.invalid(here, name, "may not be specified when 'hostIPC' is true")
        seen.add(name)
