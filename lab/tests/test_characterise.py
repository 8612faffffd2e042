"""What is measured of hybrid inference, the cost file, and the paper's figures beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hushtable.cli import app
from hushtable.errors import ConfigError
from hushtable_lab import characterise as _characterise
from hushtable_lab import paper_networks, plots


def bench(*arguments: str) -> Any:
    done = CliRunner().invoke(app, ["bench", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout.splitlines()[-1])


def test_the_papers_table_1_follows_from_its_constants() -> None:
    network = paper_networks.network("resnet18", 64)
    assert network is not None
    offline, online = network.seconds(client_garbles=False)
    assert offline == pytest.approx(1103.5, abs=0.1)  # 25.1 garbling, 1078 encrypted
    assert online == pytest.approx(200 + 0.61, rel=0.001)
    up, down = network.traffic(client_garbles=False)
    # Megabits; both phases over an even split of 1 Gbit/s: 704.4 and 42.5 s.
    assert 8e-6 * up == pytest.approx(22602.36, rel=1e-4)
    assert 8e-6 * down == pytest.approx(350883.24, rel=1e-4)
    assert 8e-6 * (up + down) / 500 == pytest.approx(704.44 + 42.53, rel=1e-3)
    assert network.client_bytes(client_garbles=False) == pytest.approx(40.66e9, rel=1e-3)
    assert network.client_bytes(client_garbles=True) == pytest.approx(8.0e9, rel=1e-2)


@pytest.mark.parametrize(
    ("client_garbles", "up", "seconds"), [(False, 202, 551.60), (True, 834, 487.35)]
)
def test_the_papers_wireless_slots_are_found(
    client_garbles: bool, up: float, seconds: float
) -> None:
    network = paper_networks.network("resnet18", 64)
    assert network is not None
    found = plots.slots(*network.traffic(client_garbles=client_garbles), 1000.0)
    assert found == (pytest.approx(up, abs=1), pytest.approx(seconds, abs=0.1))


@pytest.fixture(scope="module")
def garbling() -> dict[str, Any]:
    return dict(bench("garble", "--seconds", "0.01", "--threads", "1"))


@pytest.mark.timed
def test_garbling_is_near_its_floor_and_evaluating_no_slower(garbling: dict[str, Any]) -> None:
    assert 0 < garbling["of_floor"] <= 1.5
    assert garbling["detail"]["evaluate"] > garbling["value"] / 2


def test_garbling_is_measured_beside_its_floor(garbling: dict[str, Any]) -> None:
    found = garbling
    assert found["bench"] == "garble" and found["unit"] == "AND gates/s"
    assert found["of_floor"] > 0
    detail = found["detail"]
    assert detail["evaluate"] > 0
    # k = 37 and f = 12: 24 gates of 32 bytes, 72 or 73 rows of 5.
    assert detail["stochastic_and_gates"] == 24
    assert 24 * 32 < detail["stochastic_table_bytes"] <= 1150
    assert detail["nearest_table_bytes"] > detail["stochastic_table_bytes"]
    assert detail["delphi_and_gates"] > 4 * detail["stochastic_and_gates"]


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cost files of the smallest network, by either garbler."""
    folder = tmp_path_factory.mktemp("costs")
    for garbler in ("server", "client"):
        found = bench(
            *("hybrid", "--network", "lenet", "--size", "32", "--garbler", garbler),
            *("--cost", str(folder)),
        )
        detail = found["detail"]
        assert found["value"] == pytest.approx(detail["offline_s"] + detail["online_s"])
        assert detail["exact"] is True
        assert detail["client_memory_bytes"] > 0 and detail["server_memory_bytes"] > 0
        assert "paper_bytes" not in detail  # which has no LeNet
    return folder


def test_a_cost_file_says_what_either_garbler_costs(costs: Path) -> None:
    by_server, by_client = (
        _characterise.read_cost(costs / f"lenet-32-{garbler}.json")
        for garbler in ("server", "client")
    )
    circuits = by_server["counts"]["circuit_bytes"]
    assert by_server["storage"]["client_bytes"] >= circuits
    assert by_client["storage"]["server_bytes"] >= circuits
    assert by_client["storage"]["client_bytes"] < circuits / 10
    # Who garbles sends the circuits.
    assert by_server["offline"]["down"]["circuits"] >= circuits
    assert by_client["offline"]["up"]["circuits"] >= circuits
    assert by_server["offline"]["server"]["garble"] > 0
    assert by_server["offline"]["client"]["garble"] == 0
    assert by_client["online"]["server"]["evaluate"] > 0
    layers = by_server["offline"]["layers"]
    assert len(layers) == by_server["counts"]["convolutions"]
    assert 0 < max(layers) <= sum(layers)
    # Framing is little: bytes of the two processes are those of the protocol.
    for phase in ("offline", "online"):
        for way in ("up", "down"):
            counted = sum(by_server[phase][way].values())
            assert counted <= by_server[phase][f"bytes_{way}"] < 1.05 * counted + 20_000


def test_files_that_are_no_costs_are_refused(tmp_path: Path, costs: Path) -> None:
    path = tmp_path / "cost.json"
    for text, says in (
        ("", "no cost file"),
        ("[]", "no cost file"),
        ('{"format": 9}', "format 9, this version reads 1"),
        ('{"format": 1, "network": "x"}', "no cost file"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=says):
            _characterise.read_cost(path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--network", "alexnet"], "resnet18"),
        (["--size", "48"], "32 or 64"),
        (["--garbler", "both"], "server or client"),
        (["--runs", "0"], "1 to 1000"),
        (["--parallel", "request"], "layer or sequential"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["bench", "hybrid", *arguments])
    assert done.exit_code != 0
    assert says in done.output + str(done.exception)


def cost(network: paper_networks.PaperNetwork, garbler: str) -> dict[str, Any]:
    """A made-up one: a tenth of the paper's."""
    up, down = network.traffic(client_garbles=garbler == "client")
    kept = network.client_bytes(client_garbles=garbler == "client")
    part = {"he": 1.0, "ot": 0.1, "garble": 0.5, "evaluate": 0.2, "shares": 0.1}
    return {
        "format": 1,
        "network": network.name,
        "size": network.size,
        "garbler": garbler,
        "counts": {},
        "storage": {"client_bytes": kept / 10, "server_bytes": 1},
        "offline": {
            "client": part,
            "server": part,
            "layers": [0.1, 0.3, 0.2],
            "bytes_up": up / 10,
            "bytes_down": down / 10,
        },
        "online": {"client": part, "server": part, "bytes_up": 1, "bytes_down": 1},
    }


def test_the_figures_are_drawn_of_what_was_measured(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra hushtable-lab[plot] is not installed")
    both = [
        cost(one, garbler) for one in paper_networks.NETWORKS for garbler in ("server", "client")
    ]
    written = plots.draw(both, tmp_path / "all")
    names = {path.stem for path in written if path.suffix == ".svg"}
    assert {name.split("-")[1] for name in names} == {"3", "4", "5", "8", "9", "11"}
    wireless = (tmp_path / "all" / "figure-11-wireless.svg").read_text(encoding="utf-8")
    # The paper's points, of the closed form: 202 and 834 of 1,000 up.
    assert "202 up" in wireless and "834 up" in wireless
    storage = (tmp_path / "all" / "figure-3-storage.svg").read_text(encoding="utf-8")
    assert all(one.title in storage for one in paper_networks.NETWORKS)
    # Those by one garbler alone need no other.
    one = plots.draw([cost(paper_networks.NETWORKS[0], "server")], tmp_path / "one")
    assert {path.stem.split("-")[1] for path in one} == {"3", "4", "5", "9"}
    assert plots.draw([], tmp_path / "none") == []
