"""Attacks on a Kyu server: floods of connections, hostile objects, and a fuzzer that goes on for as long as wanted."""
