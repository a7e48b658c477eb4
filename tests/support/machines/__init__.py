"""Simulated machines: Debian roots in namespaces of their own, joined by a bridge, on which the provisioning is tried for real."""
