"""Table views; not in this version."""

from geminga import Schema, TableView

__all__ = [
    "Schema",
    "TableView",
]
