"""Nodes: this machine and simulated ones, and their heartbeats."""
