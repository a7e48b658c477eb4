"""Exporting topics piece by piece."""
