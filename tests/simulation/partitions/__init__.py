"""Partitions under simulation: replicas at brokers, elections by coordinators, clients with sequences and request ids."""
