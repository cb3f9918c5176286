"""
The queues of a replica that stands by, so that each replica can answer.

A state of the engine is made at the first request and follows the cache from then on. It decides nothing. A replica
that acts uses the state of its scheduler instead.
"""

from __future__ import annotations

from kyu.api.config.config import Configuration
from kyu.api.meta import Json, Kind, key_of
from kyu.controllers.plane import Plane
from kyu.controllers.scheduler import TYPE_BY_KIND, put_object
from kyu.engine.options import from_configuration
from kyu.engine.state import State


class FollowedQueues:
    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._state: State | None = None
        self._configuration: Configuration | None = None
        self._is_subscribed = False

    def current_state(self) -> State | None:
        """Return the state of the scheduler if it acts, else the followed one; None until all objects are known."""
        plane = self._plane
        if (acting := plane.scheduler.current_state()) is not None:
            return acting
        if not plane.started.is_set():
            return None
        if self._state is None or self._configuration is not plane.view.configuration:
            self._state = self._make_state()
        return self._state

    def _make_state(self) -> State:
        view = self._plane.view
        self._configuration = view.configuration
        state = State(from_configuration(view.configuration))
        for kind, type_ in TYPE_BY_KIND.items():
            for raw in view.list_json(kind):
                put_object(state, view, type_, key_of(raw))
        if not self._is_subscribed:
            self._plane.cache.subscribe(self._changed, *TYPE_BY_KIND)
            self._is_subscribed = True
        return state

    def _changed(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        if self._plane.scheduler.current_state() is not None:
            self._state = None
        if self._state is None:
            return
        if new is not None:
            put_object(self._state, self._plane.view, TYPE_BY_KIND[kind], key_of(new))
        elif old is not None:
            self._state.delete(kind, key_of(old))
