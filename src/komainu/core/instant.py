"""A moment as it travels: always with its zone, or it could not be compared with any other."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""A datetime that is refused where it is read (JSON from a node, a server, a file) without its zone."""
