"""An embedded broker for tests: in this process, in memory, on any free port.

>>> from geminga.testing import EmbeddedBroker
>>> with EmbeddedBroker() as broker:
...     broker.service_url.startswith("pulsar://127.0.0.1:")
True

With pytest, the fixtures ``pulsar_broker`` and ``pulsar_url`` come with the package.
"""

from __future__ import annotations

from collections.abc import Iterable

from geminga import _geminga

__all__ = ["EmbeddedBroker"]


class EmbeddedBroker:
    """A broker for tests. It forgets everything when it stops.

    - ``port``, ``admin_port``: where it listens on 127.0.0.1; 0 is any free port.
    - ``tokens``: tokens that may connect; none for everybody.

    It runs from its making until ``stop``, or the end of a ``with`` block. Raises OSError for a port that is taken.
    """

    def __init__(self, port: int = 0, admin_port: int = 0, tokens: Iterable[str] = ()) -> None:
        self._tokens = list(tokens)
        self._broker = _geminga.Broker(port, admin_port, self._tokens)

    @property
    def service_url(self) -> str:
        """Its address for clients, such as ``pulsar://127.0.0.1:6650``."""
        return self._broker.service_url

    @property
    def admin_url(self) -> str:
        """Its address for the admin REST API, such as ``http://127.0.0.1:8080``."""
        return self._broker.admin_url

    def stop(self) -> None:
        """Closes all connections and listeners. What was stored is gone. Stopping twice is fine."""
        self._broker.stop()

    def restart(self) -> None:
        """Crashes and starts again at the same address; what was stored stays. Clients come back by themselves."""
        self._broker.restart()

    def __enter__(self) -> EmbeddedBroker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "running" if self._broker.is_running() else "stopped"
        return f"<EmbeddedBroker {state} at {self.service_url}>"
