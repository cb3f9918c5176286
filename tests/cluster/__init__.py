"""
A real Kubernetes control plane for the tests: built from Go modules once, started in seconds, gone with the test run.

Each part (API server, scheduler, Kueue, …) is a process on a loopback address of its own; a control plane is a folder,
an address and a set of such processes. Nothing here knows Kyu: it is the ground that Kyu is tried on.

Called by: make control-plane, make test-cluster, and the tests in this folder. Start reading at controlplane.py.
"""
