"""
The view of plans in a running process: the cache, and the settings in force.

The settings are Kueue's ConfigMap, read live. Settings that cannot be used are logged once, and the former ones stay.

Implements kyu.api.actions.View.
"""

from __future__ import annotations

from collections.abc import Callable

from kyu import log
from kyu.api.config import file
from kyu.api.config.config import Configuration
from kyu.api.config.file import SETTINGS
from kyu.api.core import CONFIG_MAP
from kyu.api.meta import Json, Kind, key_of
from kyu.kube.cache import Cache


class LiveView:
    """The cache as a View. ``on_settings`` is called after the settings have changed."""

    def __init__(self, cache: Cache, configuration: Configuration, on_settings: Callable[[], None]) -> None:
        self._on_settings = on_settings
        self.configuration = configuration
        self.get = cache.get
        self.list = cache.list
        self.find_json = cache.find_json
        self.list_json = cache.list_json
        self.owned_by = cache.owned_by

    def changed(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        """Follow the ConfigMap."""
        if kind != CONFIG_MAP or new is None or key_of(new) != SETTINGS:
            return
        configuration = read_settings(new)
        if configuration is not None and configuration != self.configuration:
            self.configuration = configuration
            log.info("settings changed", source=SETTINGS)
            self._on_settings()


def read_settings(config_map: Json) -> Configuration | None:
    """Return the settings of the ConfigMap; log an error and return None if they cannot be used."""
    try:
        loaded = file.load_config_map(config_map)
    except ValueError as error:
        log.error("settings not usable, the former ones stay", source=SETTINGS, error=error)
        return None
    for warning in loaded.warnings:
        log.warning("settings", source=SETTINGS, warning=warning)
    return loaded.configuration
