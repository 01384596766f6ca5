"""The exceptions, which are geminga's."""

from geminga.exceptions import *  # noqa: F403
from geminga.exceptions import __all__

__all__ = [*__all__]
