import pytest


# Session scope, so that hypothesis may use it too.
@pytest.fixture(scope="session", params=["torch", "numba"])
def backend(request):
    return request.param


# For classes and for mixed cases: "auto" takes the compiled backend where there is one.
@pytest.fixture(scope="session", params=["torch", "auto"])
def either_backend(request):
    return request.param
