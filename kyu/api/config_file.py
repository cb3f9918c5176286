"""
A Kueue configuration file, read strictly: which version it is, what it says, and whether that makes sense.

``load`` takes the JSON of the file and returns the Configuration with all defaults, plus warnings for what is odd but
harmless. Whatever is wrong is collected and refused at once, each fault with its path.

Used by: cli and app. Kueue: pkg/config, apis/config/v1beta1 (whose files are still read)
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from kyu.api import config, config_rules, config_unused, documents
from kyu.api.config import BOTH_STRATEGIES, GROUP, Configuration
from kyu.api.errors import FieldError, forbidden, invalid, not_supported, required, type_invalid
from kyu.api.meta import Json, Key

# Where the settings of a cluster are: a file in a ConfigMap.
SETTINGS = Key("kueue-system", "kueue-manager-config")
SETTINGS_FILE = "controller_manager_config.yaml"
VERSIONS = (f"{GROUP}/v1beta1", f"{GROUP}/v1beta2")
_AT = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>.*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)

# Blocks of v1beta1 that have a switch of their own, with the settings that they have when switched on.
_SWITCHED_BLOCKS: Mapping[str, Json] = {
    "waitForPodsReady": {"blockAdmission": True},
    "fairSharing": {"preemptionStrategies": list(BOTH_STRATEGIES)},
}


class Loaded(msgspec.Struct, frozen=True):
    configuration: Configuration
    warnings: tuple[str, ...] = ()


class InvalidConfiguration(ValueError):
    """The file cannot be used; ``errors`` has all faults that were found."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("\n".join(map(str, errors)))
        self.errors = errors


def load_config_map(config_map: Json) -> Loaded:
    """The settings in a ConfigMap, or a ``ValueError`` where they cannot be used or are missing."""
    parsed = documents.parse((config_map.get("data") or {}).get(SETTINGS_FILE, ""))
    return load(parsed[0].value if parsed else {})


def load(document: Json) -> Loaded:
    """The configuration that the file says, or ``InvalidConfiguration``."""
    version = document.get("apiVersion")
    if version is None:
        raise InvalidConfiguration([required("apiVersion", f"must be one of {', '.join(VERSIONS)}")])
    if version not in VERSIONS:
        raise InvalidConfiguration([not_supported("apiVersion", version, VERSIONS)])
    if document.get("kind") != "Configuration":
        raise InvalidConfiguration([invalid("kind", document.get("kind"), 'must be "Configuration"')])
    settings = _without_nulls(document)
    warnings: list[str] = []
    if version == VERSIONS[0]:
        settings = _from_v1beta1(settings, warnings)
    configuration = _decode(settings)
    configuration = _without_repeated_frameworks(configuration, warnings)
    if configuration.gates.enabled("DisableWaitForPodsReady"):
        configuration = msgspec.structs.replace(configuration, wait_for_pods_ready=None)
    if errors := list(config_rules.validate(configuration)):
        raise InvalidConfiguration(errors)
    return Loaded(configuration, (*warnings, *config_unused.warnings(configuration)))


def _without_nulls(value: Json) -> Json:
    """A null is the same as nothing."""
    return {
        key: _without_nulls(item) if isinstance(item, dict) else item for key, item in value.items() if item is not None
    }


def _decode(settings: Json) -> Configuration:
    """msgspec stops at the first fault; an unknown field is set aside to look for others."""
    errors: list[FieldError] = []
    settings = copy.deepcopy(settings)
    while True:
        try:
            configuration = msgspec.convert(settings, Configuration, dec_hook=config.decode_extra)
        except msgspec.ValidationError as error:
            what, path = _split(str(error))
            unknown = _UNKNOWN.fullmatch(what)
            if unknown is None:
                fault = type_invalid(path, _at(settings, path), what[:1].lower() + what[1:])
                raise InvalidConfiguration([*errors, fault]) from None
            errors.append(forbidden(f"{path}.{unknown[1]}".removeprefix("."), "there is no such setting"))
            del _at(settings, path)[unknown[1]]
            continue
        if errors:
            raise InvalidConfiguration(errors)
        return configuration


def _split(message: str) -> tuple[str, str]:
    """What msgspec says, and where: "… - at `$.a.b[0]`" has the path a.b[0]."""
    match = _AT.fullmatch(message)
    assert match is not None
    return match["what"], (match["path"] or "").removeprefix("$").removeprefix(".")


def _at(settings: Json, path: str) -> Any:
    node: Any = settings
    for step in re.findall(r"[^.\[\]]+", path):
        node = node[int(step)] if isinstance(node, list) else node[step]
    return node


def _from_v1beta1(settings: Json, warnings: list[str]) -> Json:
    """The same settings as v1beta2 says them. A block that was present but switched off goes away."""
    settings = {**settings, "apiVersion": VERSIONS[1]}
    for block, defaults in _SWITCHED_BLOCKS.items():
        section = settings.get(block)
        if isinstance(section, dict):
            enabled = bool(section.get("enable"))
            rest = {name: value for name, value in section.items() if name != "enable"}
            settings[block] = {**defaults, **rest} if enabled else None
    if "queueVisibility" in settings:
        del settings["queueVisibility"]
        warnings.append("queueVisibility is no longer used: pending workloads are shown by the visibility API")
    integrations = settings.get("integrations")
    if isinstance(integrations, dict) and "podOptions" in integrations:
        settings["integrations"] = {name: value for name, value in integrations.items() if name != "podOptions"}
        warnings.append("integrations.podOptions is no longer used: managedJobsNamespaceSelector takes its place")
    # Unlike in v1beta2, waiting for pods is off unless it is asked for.
    return {"waitForPodsReady": None, **settings}


def _without_repeated_frameworks(configuration: Configuration, warnings: list[str]) -> Configuration:
    """Scripts append "pod" to the list without looking; naming a framework twice is the same as once."""
    frameworks = configuration.integrations.frameworks
    repeated = [name for name in dict.fromkeys(frameworks) if frameworks.count(name) > 1]
    warnings.extend(f"integrations.frameworks: {name!r} is listed more than once" for name in repeated)
    integrations = msgspec.structs.replace(configuration.integrations, frameworks=tuple(dict.fromkeys(frameworks)))
    return msgspec.structs.replace(configuration, integrations=integrations)
