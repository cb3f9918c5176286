"""The identities of pods: the ServiceAccount that they call the server as, and the Unix user that they run as."""
