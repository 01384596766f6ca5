"""The version."""

from geminga import __version__

__all__ = ["__version__"]
