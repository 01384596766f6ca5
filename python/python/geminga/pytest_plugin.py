"""Fixtures for pytest: ``pulsar_broker`` and ``pulsar_url``, both on one embedded broker per test session.

With GEMINGA_BROKER_URL set, ``pulsar_url`` is that broker.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from geminga.testing import EmbeddedBroker


@pytest.fixture(scope="session")
def pulsar_broker() -> Iterator[EmbeddedBroker]:
    """An ``EmbeddedBroker`` for the whole session."""
    from geminga.testing import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def pulsar_url(request: pytest.FixtureRequest) -> str:
    """The service URL of a broker for the whole session."""
    broker_url = os.environ.get("GEMINGA_BROKER_URL")
    if broker_url:
        return broker_url
    broker: EmbeddedBroker = request.getfixturevalue("pulsar_broker")
    return broker.service_url
