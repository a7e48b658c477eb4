"""Raft over the managers' WAL, pure: no clock, socket, file or thread. See DESIGN.md for the driver's duties."""
