"""Starts and watches the processes of a cluster on one machine. See DESIGN.md."""

from .cluster import Cluster
from .plan import KINDS, Kind
from .spec import ClusterSpec

__all__ = ["KINDS", "Cluster", "ClusterSpec", "Kind"]
