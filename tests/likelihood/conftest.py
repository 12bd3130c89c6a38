import pytest


# Session scope, so that hypothesis may use it too.
@pytest.fixture(scope="session", params=["torch", "numba"])
def path(request):
    if request.param == "numba":
        pytest.importorskip("numba")
    return request.param


# For classes and for mixed cases: "auto" takes the compiled path where there is one.
@pytest.fixture(scope="session", params=["torch", "auto"])
def either_path(request):
    return request.param
