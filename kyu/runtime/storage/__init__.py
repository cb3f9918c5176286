"""
Limits on the disk space and memory that the files of pods take.

START READING at eviction.py; limits.py has the rules.
"""
