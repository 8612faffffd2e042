"""What docs/recipes.md shows: its table, and its programs, run against real servers."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Deployment

import hushtable
from hushtable.gateway import STATUSES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def program(marker: str) -> Any:
    """What the one program that holds ``marker`` defines."""
    (text,) = (text for text in PROGRAMS if marker in text)
    module = types.ModuleType("shown")
    exec(compile(text, "docs/recipes.md", "exec"), module.__dict__)
    return module


def test_every_program_is_run_here() -> None:
    markers = ("async_client", "FastAPI(", "serve.deployment", "TritonPythonModel")
    assert [sum(marker in text for text in PROGRAMS) for marker in markers] == [1] * len(markers)
    assert len(PROGRAMS) == len(markers)


def test_the_table_of_statuses_is_what_is_done() -> None:
    shown = re.findall(r"^\| `(\w+)` \| (\d+) \|", PAGE, re.MULTILINE)
    assert shown == [(kind.__name__, str(status)) for kind, status in STATUSES]


def test_a_service_of_fastapi(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    testing = pytest.importorskip("fastapi.testclient", reason="flwr brings it in CI")
    for name, value in {
        "LEFT_URL": deployment.left.url,
        "RIGHT_URL": deployment.right.url,
        "CA": str(deployment.certificates.ca),
    }.items():
        monkeypatch.setenv(name, value)
    with testing.TestClient(program("FastAPI(").app, raise_server_exceptions=False) as service:
        found = service.post("/films", json=[5, 1])
        assert found.status_code == 200
        assert np.array_equal(np.float32(found.json()), deployment.weight[[5, 1]])
        for ids, status, error in (
            ([3000], 400, "IdOutOfRange"),
            (list(range(17)), 400, "TooManyIds"),
        ):
            found = service.post("/films", json=ids)
            assert (found.status_code, found.json()["error"]) == (status, error)


def test_a_gateway_within_another_service(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    testing = pytest.importorskip("fastapi.testclient", reason="flwr brings it in CI")
    page = (Path(__file__).resolve().parents[2] / "docs" / "gateway.md").read_text("utf-8")
    (text,) = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(deployment.certificates.ca.parent)
    names: dict[str, Any] = {}
    body = "".join(f"    {line}\n" for line in text.splitlines())
    exec(f"async def shown(service, left, right):\n{body}    return client", names)
    service = sys.modules["fastapi"].FastAPI()
    urls = (deployment.left.url, deployment.right.url)
    client = asyncio.run(names["shown"](service, *urls))
    try:
        with testing.TestClient(service) as asked:
            found = asked.post("/rows/v1/lookup", json={"ids": [3]})
            assert np.array_equal(np.float32(found.json()["rows"]), deployment.weight[[3]])
            assert asked.get("/rows/docs").status_code == 200
            assert asked.get("/rows/nothing").json()["error"]["code"] == "not_found"
    finally:
        client.close()


def test_a_deployment_of_ray_serve(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    # Ray Serve itself is no dependency here: what it calls is.
    serve = types.SimpleNamespace(deployment=lambda **_: bindable)
    ray = types.ModuleType("ray")
    ray.serve = serve  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ray)
    shown = program("serve.deployment")
    where = (deployment.left.url, deployment.right.url, str(deployment.certificates.ca))

    async def run() -> None:
        ranker = shown.Ranker(*where)
        asked = [Request({"ids": [n, n + 1]}) for n in range(8)]
        scores = await asyncio.gather(*map(ranker, asked))
        for n, said in enumerate(scores):
            assert said == {"score": float(deployment.weight[[n, n + 1]].mean())}
        ranker._films.close()

    asyncio.run(run())


def bindable(kind: type) -> type:
    kind.bind = classmethod(lambda cls, *given: (cls, given))  # type: ignore[attr-defined]
    return kind


class Request:
    def __init__(self, body: object) -> None:
        self._body = body

    async def json(self) -> object:
        return self._body


def test_a_model_of_triton(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    # Triton's own module is there in its backend's processes alone.
    utils: Any = types.ModuleType("triton_python_backend_utils")
    utils.Tensor = lambda name, array: types.SimpleNamespace(name=name, array=array)
    utils.InferenceResponse = lambda tensors, error=None: types.SimpleNamespace(
        tensors=tensors, error=error
    )
    utils.TritonError = str
    utils.get_input_tensor_by_name = lambda request, name: types.SimpleNamespace(
        as_numpy=lambda: request[name]
    )
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", utils)
    given = {
        "left": deployment.left.url,
        "right": deployment.right.url,
        "ca": str(deployment.certificates.ca),
        "max_ids": "8",
    }
    parameters = {name: {"string_value": value} for name, value in given.items()}
    model = program("TritonPythonModel").TritonPythonModel()
    model.initialize({"model_config": json.dumps({"parameters": parameters})})
    try:
        asked = [np.array([[1, 2], [3, 4]]), np.array([7])]
        said = model.execute([{"ids": ids} for ids in asked])
        for ids, one in zip(asked, said, strict=True):
            assert one.error is None and one.tensors[0].name == "rows"
            assert np.array_equal(one.tensors[0].array, deployment.weight[ids])
        said = model.execute([{"ids": np.array([3000])}, {"ids": np.array([1])}])
        assert [one.error for one in said] == ["IdOutOfRange"] * 2
    finally:
        model.finalize()


def test_the_calls_that_are_shown(deployment: Deployment) -> None:
    lines = next(text for text in PROGRAMS if "async_client" in text).splitlines()
    with deployment.connect() as client:
        names: dict[str, Any] = {"client": client, "ids": [3, 4]}
        exec(lines[0], names)
    assert np.array_equal(names["rows"], deployment.weight[[3, 4]])

    async def run() -> np.ndarray:
        urls = (deployment.left.url, deployment.right.url)
        tls = deployment.certificates.ca
        async with await hushtable.connect_async(*urls, tls=tls) as async_client:
            names: dict[str, Any] = {"async_client": async_client, "ids": [5]}
            body = lines[1].strip()
            exec(f"async def shown(async_client, ids):\n    {body}\n    return rows", names)
            return await names["shown"](async_client, [5])

    assert np.array_equal(asyncio.run(run()), deployment.weight[[5]])
