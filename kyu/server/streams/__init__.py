"""
Interactive streams into pods: exec, attach and port-forward, over WebSocket and SPDY/3.1. START READING in pods.py.

Kubernetes: apimachinery/pkg/util/{httpstream,remotecommand}, kubelet/pkg/cri/streaming.
"""
