"""
Runs Pods as processes of this machine, or pretends to.

START READING at processes.py; docs/reference/runtime.md says what a user sees.
"""
