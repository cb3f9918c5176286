"""
The accounts of a local server: a line in the ledger for each attempt of a pod, and the API that reads it.

The runtime reports the start and the end of pods; bookkeeper.py describes them with their Workload and submitter,
ledger.py keeps the lines, and resource.py serves them.
"""
