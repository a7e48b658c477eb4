"""Faults on real processes under load, and checkers that judge what was seen: ``scripts/faults``. See DESIGN.md.

``schedule``, ``history``, ``checkers`` and ``verdict`` are pure; ``lab``, ``switchboard``, ``nemesis``, ``workload`` and ``observe`` touch the world.
"""
