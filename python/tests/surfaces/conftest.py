"""The fixture that every case takes: `geminga`, and then `geminga.asyncio`."""

import pytest

from .surface import Asyncio, Blocking


@pytest.fixture(params=[Blocking, Asyncio], ids=["blocking", "asyncio"])
def surface(request, pulsar_url, admin):
    surface = request.param(pulsar_url, admin, request.node.originalname.removeprefix("test_"))
    yield surface
    surface.close()


@pytest.fixture
def client(surface):
    return surface.client()
