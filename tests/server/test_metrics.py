"""Metrics of requests."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from kyu.server.metrics import Durations


def test_requests_are_counted_by_how_long_they_took() -> None:
    durations, registry = Durations(), CollectorRegistry()
    registry.register(durations)
    for seconds in (0.0005, 0.001, 0.003, 99.0):
        durations.note("patch", seconds)
    durations.note("get", 0.002)
    name = "apiserver_request_duration_seconds"
    lines = [line for line in generate_latest(registry).decode().splitlines() if 'verb="patch"' in line]
    counts = {line.partition(" ")[0]: float(line.partition(" ")[2]) for line in lines}
    assert counts[f'{name}_bucket{{le="0.001",verb="patch"}}'] == 2
    assert counts[f'{name}_bucket{{le="0.0025",verb="patch"}}'] == 2
    assert counts[f'{name}_bucket{{le="0.005",verb="patch"}}'] == 3
    assert counts[f'{name}_bucket{{le="10.0",verb="patch"}}'] == 3
    assert counts[f'{name}_bucket{{le="+Inf",verb="patch"}}'] == 4
    assert counts[f'{name}_count{{verb="patch"}}'] == 4
    assert counts[f'{name}_sum{{verb="patch"}}'] == 99.0045
