"""
Commands and connections into pods that run.

The server gives a supervisor the ends of pipes over a socket in the pod's folder; the supervisor starts the command in
the pod. Bytes then flow between the server and the command alone. START READING in execs.py.
"""
