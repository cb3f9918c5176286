"""
Reading of a Kueue configuration file: its version, its fields and their values.

``load`` takes the JSON of the file and returns the Configuration with all defaults, plus warnings for odd but harmless
settings. All errors are collected and reported together, each with its path.

Kueue: pkg/config, apis/config/v1beta1 (whose files are still read)
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from kyu.api import documents
from kyu.api.config import config, rules, unused
from kyu.api.config.config import BOTH_STRATEGIES, GROUP, Configuration
from kyu.api.errors import FieldError, forbidden, invalid, not_supported, required, type_invalid
from kyu.api.meta import Json, Key

# The ConfigMap, and the file in it, with the settings of a cluster.
SETTINGS = Key("kueue-system", "kueue-manager-config")
SETTINGS_FILE = "controller_manager_config.yaml"
VERSIONS = (f"{GROUP}/v1beta1", f"{GROUP}/v1beta2")
_AT = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>.*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)

# Blocks of v1beta1 that have a switch of their own, with their settings when switched on.
_SWITCHED_BLOCKS: Mapping[str, Json] = {
    "waitForPodsReady": {"blockAdmission": True},
    "fairSharing": {"preemptionStrategies": list(BOTH_STRATEGIES)},
}


class Loaded(msgspec.Struct, frozen=True):
    configuration: Configuration
    warnings: tuple[str, ...] = ()


class InvalidConfiguration(ValueError):
    """The file cannot be used; ``errors`` lists every fault."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("\n".join(map(str, errors)))
        self.errors = errors


def load_config_map(config_map: Json) -> Loaded:
    """Load the settings in a ConfigMap. Raises ``ValueError`` if they are missing or unusable."""
    parsed = documents.parse((config_map.get("data") or {}).get(SETTINGS_FILE, ""))
    return load(parsed[0].value if parsed else {})


def load(document: Json) -> Loaded:
    """Load the configuration from the content of a file, or raise ``InvalidConfiguration``."""
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
    if errors := list(rules.validate(configuration)):
        raise InvalidConfiguration(errors)
    return Loaded(configuration, (*warnings, *unused.warnings(configuration)))


def _without_nulls(value: Json) -> Json:
    """Remove members that are null, at every depth: null means absent."""
    return {
        key: _without_nulls(item) if isinstance(item, dict) else item for key, item in value.items() if item is not None
    }


def _decode(settings: Json) -> Configuration:
    """Decode the settings and collect all errors: msgspec stops at the first, so each unknown field is removed in turn.
    """
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
    """Split a message of msgspec into text and path: "… - at `$.a.b[0]`" has the path a.b[0]."""
    match = _AT.fullmatch(message)
    assert match is not None
    return match["what"], (match["path"] or "").removeprefix("$").removeprefix(".")


def _at(settings: Json, path: str) -> Any:
    node: Any = settings
    for step in re.findall(r"[^.\[\]]+", path):
        node = node[int(step)] if isinstance(node, list) else node[step]
    return node


def _from_v1beta1(settings: Json, warnings: list[str]) -> Json:
    """Convert the settings to v1beta2. A block that was present but switched off is dropped."""
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
    # Unlike in v1beta2, waitForPodsReady is off by default.
    return {"waitForPodsReady": None, **settings}


def _without_repeated_frameworks(configuration: Configuration, warnings: list[str]) -> Configuration:
    """Drop repeated frameworks with a warning. Scripts append "pod" to the list without looking."""
    frameworks = configuration.integrations.frameworks
    repeated = [name for name in dict.fromkeys(frameworks) if frameworks.count(name) > 1]
    warnings.extend(f"integrations.frameworks: {name!r} is listed more than once" for name in repeated)
    integrations = msgspec.structs.replace(configuration.integrations, frameworks=tuple(dict.fromkeys(frameworks)))
    return msgspec.structs.replace(configuration, integrations=integrations)
