"""Fixtures that every test may use."""

from __future__ import annotations

import os

from hypothesis import settings

pytest_plugins = ["tests.support.cluster"]

# A busy machine is not a fault of the code: no property has a time limit of its own. CI draws the same examples every
# time, so that it fails only for what a change did; elsewhere every run looks for new ones.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", parent=settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
