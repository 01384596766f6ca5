"""Fixtures for pytest: ``pulsar_broker`` and ``pulsar_url``, both on one embedded broker per test session.

With GEMINGA_BROKER_URL set, ``pulsar_url`` is that broker.
"""

import os

import pytest


@pytest.fixture(scope="session")
def pulsar_broker():
    """An ``EmbeddedBroker`` for the whole session."""
    from geminga.testing import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def pulsar_url(request):
    """The service URL of a broker for the whole session."""
    return os.environ.get("GEMINGA_BROKER_URL") or request.getfixturevalue("pulsar_broker").service_url
