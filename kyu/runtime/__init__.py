"""
Runs Pods as processes of this machine, or pretends to.

START READING at processes.py; docs/runtime.md says what a user sees.
"""
