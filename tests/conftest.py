"""What holds for every test.

Laws are searched with fresh examples on a developer's machine, and with the same ones in CI: a
counter-example nobody has seen yet is found where somebody can mend it, and not by whoever submits
next. No law has a time limit per example: a busy machine is no counter-example.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("search", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "search")
