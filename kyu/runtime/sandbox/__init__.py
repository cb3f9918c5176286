"""
Keeps a pod apart from the machine and from other pods.

START READING at namespaces.py; docs/operations/security.md says what a tenant can and cannot do.
"""
