"""How properties are searched: without deadlines, on a busy machine too; where CI is set, the same way each time."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("core", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("core")
