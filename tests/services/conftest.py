"""Fixtures of the catalog's tests that are used here as well: folders of one's own, a hub on the loopback."""

from __future__ import annotations

from tests.catalog.conftest import clean, hub, listener, tiny, tiny_parts

__all__ = ["clean", "hub", "listener", "tiny", "tiny_parts"]
