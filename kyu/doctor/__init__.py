"""Findings about a configuration: references that lead nowhere, settings that never take effect, quota that leaks."""
