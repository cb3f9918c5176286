"""
Settings of all tests: property tests draw the same examples on every run, and take the time they need.

KYU_FUZZ=N draws N new examples each time instead, to look for what nobody thought of.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("same", PATIENT, derandomize=True)
settings.register_profile("fuzz", PATIENT, max_examples=int(os.environ.get("KYU_FUZZ", "1000")))
settings.load_profile("fuzz" if "KYU_FUZZ" in os.environ else "same")
