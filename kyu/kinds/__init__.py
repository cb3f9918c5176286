"""
Job kinds: what the rest of Kyu must know of a kind of job, and nothing more.

``kind.py`` has the contract, ``table.py`` the list of kinds, and each kind its own small file. All functions take raw
JSON objects and give values back; unknown fields pass through untouched.
"""
