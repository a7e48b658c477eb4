"""The operations of each face, as a producer and a consumer use them."""

from __future__ import annotations

from .by_partition import PartitionFace
from .by_queue import QueueFace
from .face import Face
from .groups import GroupFace, SdkGroupFace
from .native import NativeFace
from .sdk import SdkFace

FACES: dict[str, type[Face]] = {face.name: face for face in (QueueFace, PartitionFace, NativeFace, SdkFace, GroupFace, SdkGroupFace)}
