"""Keeping jobs off bad nodes: hold, drain, release.

    collect.py   the gate's records, read on the node       act.py       decisions → scheduler
    decide/      what should happen, guarded; pure          pages.py     asked over HTTP
    commands/    asked at the terminal

Whose drain is whose, and how many nodes may go: docs/guides/policy.md.
"""
