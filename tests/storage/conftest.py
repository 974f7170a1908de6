"""URLs of stores that need no server."""

import uuid

import pytest


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path):
    """Return the URL of an empty folder of a store."""
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}/folder"
    return f"file://{tmp_path}/store/folder"
