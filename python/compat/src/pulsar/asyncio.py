"""The client for asyncio, which is geminga's."""

from geminga.asyncio import *  # noqa: F403
from geminga.asyncio import __all__

__all__ = [*__all__]
