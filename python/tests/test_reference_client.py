"""The protocol from its pages alone: a client without a line of ours against real servers.

`reference` is written from docs/key-format.md, docs/layout-format.md, docs/onion-format.md and the
protos. What the pages show as examples is held here as well, so that they say what is so.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from conftest import ROWS, Deployment
from reference import layout as layouts
from reference import onion as onions
from reference import pair
from reference.wire import OnionClient, PairClient, Peer

import hushtable
from hushtable import _native

ROOT = Path(__file__).resolve().parents[2]
PRGS = {"aes128": pair.AES128, "chacha20": pair.CHACHA20}
GROUPS = {"bits": 0, "z8": 1, "z32": 2}


def vectors(name: str) -> list[dict[str, Any]]:
    return json.loads((ROOT / "vectors" / f"{name}.json").read_text())["vectors"]


def example(page: str) -> dict[str, str]:
    """What a page's last `text` block says, by name."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    lines = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[-1].splitlines()
    return dict(re.split(r"  +", line, maxsplit=1) for line in lines)


def numbers(text: str) -> tuple[int, ...]:
    return tuple(ast.literal_eval(f"({text},)"))


def test_the_client_uses_no_line_of_ours() -> None:
    files = sorted(Path(pair.__file__).parent.glob("*.py"))
    assert len(files) == 8
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level > 0:
                continue
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [getattr(node, "module", None), *(alias.name for alias in node.names)]
                assert not any(str(name).startswith("hushtable") for name in names), file


@pytest.mark.parametrize("prg", PRGS)
def test_the_generators_words_are_the_known_answers(prg: str) -> None:
    known = json.loads((ROOT / "vectors" / "prg.json").read_text())
    (generator,) = (entry for entry in known["generators"] if entry["id"] == PRGS[prg])
    corrections = [bytes.fromhex(word)[::-1] for word in known["child_correction"]]
    leaf_correction = b"".join(bytes.fromhex(word)[::-1] for word in known["leaf_correction"])
    children, leaves = [], []
    for text in known["nodes"]:
        node = bytes.fromhex(text)[::-1]
        seed, is_corrected = pair.with_bit(node, 0), node[0] & 1
        for child, correction in zip(pair.expand(PRGS[prg], seed), corrections, strict=True):
            children.append(pair.xor(child, correction) if is_corrected else child)
        leaf = pair.convert(PRGS[prg], seed)
        leaf = pair.xor(leaf, leaf_correction) if is_corrected else leaf
        leaves += [leaf[at : at + 16] for at in range(0, 64, 16)]
    assert [word[::-1].hex() for word in children] == generator["children"]
    assert [word[::-1].hex() for word in leaves] == generator["leaves"]


@pytest.mark.parametrize("prg", PRGS)
def test_keys_are_the_known_answers(prg: str) -> None:
    known = [vector for vector in vectors("dpf") if vector["prg"] == prg]
    assert {vector["group"] for vector in known} == set(GROUPS)
    for vector in known:
        roots = [bytes.fromhex(seed) for seed in vector["seeds"]]
        group = GROUPS[vector["group"]]
        keys = pair.make_pair(PRGS[prg], group, vector["rows"], vector["index"], roots)
        assert [key.hex() for key in keys] == [vector["left_key"], vector["right_key"]]
        for key, shares in zip(keys, ("left_shares", "right_shares"), strict=True):
            assert [pair.share(key, row) for row in vector["share_rows"]] == vector[shares]


def test_requests_and_places_are_the_known_answers() -> None:
    for vector in vectors("batch"):
        layout = layouts.Layout(bytes.fromhex(vector["layout"]))
        assert layout.version.hex() == vector["layout_version"]
        ends = [
            [[list(place) for place in part.places(index)] for index in (0, part.rows - 1)]
            for part in layout.parts
        ]
        assert ends == vector["first_and_last_places"]
        seeds = [bytes.fromhex(seed) for seed in vector["seeds"]]
        requests = layouts.request(layout, vector["offsets"], PRGS[vector["prg"]], seeds)
        sent = [request.hex() for request in requests]
        assert sent == [vector["left_request"], vector["right_request"]]


@pytest.mark.parametrize("parameters", [make().name for make in onions.SETS.values()])
def test_onion_keys_and_queries_are_the_known_answers(parameters: str) -> None:
    known = [vector for vector in vectors("onion") if vector["parameter_set"] == parameters]
    assert known
    for vector in known:
        (set_id,) = (id for id, make in onions.SETS.items() if make().name == parameters)
        shape = (vector["row_bytes"], vector["rows"])
        geometry = onions.Geometry(set_id, *shape, levels=vector["levels"])
        assert geometry.to_bytes().hex() == vector["geometry"]
        source = onions.Source(bytes.fromhex(vector["seed"]))
        client = onions.Client(geometry, bytes.fromhex(vector["seed"]), source)
        query = client.query(vector["id"])
        number = vector["id"] // geometry.rows_per_item * geometry.chunks
        assert number == vector["plaintext"]
        mask = client.mask(number, bytes(geometry.params.plain_bytes))
        for what, found in (("keys", client.keys), ("query", query), ("mask", mask)):
            assert found[:32].hex() == vector[what]["first_bytes"]
            assert (len(found), onions.blake3(found).hexdigest()) == (
                vector[what]["bytes"],
                vector[what]["blake3"],
            )
        assert geometry.response_bytes == vector["response"]["bytes"]


def test_the_key_pages_example_is_what_comes_of_it() -> None:
    shown = {name: bytes.fromhex(value) for name, value in example("key-format.md").items()}
    roots = [shown["left root seed"], shown["right root seed"]]
    words = pair.make(pair.AES128, 0, 1300, 777, roots)
    for side, root in zip(("left", "right"), roots, strict=True):
        children = pair.expand(pair.AES128, root)
        assert children == (shown[f"L of {side}'s"], shown[f"R of {side}'s"])
    for level, pair_of_words in enumerate(words.levels):
        names = (f"level {level} left word", f"level {level} right word")
        assert pair_of_words == tuple(shown[name] for name in names)
    leaf = shown["leaf word 0 to 31"] + shown["leaf word 32 to 63"]
    assert (words.leaf, pair.right_bits(words.levels)) == (leaf, shown["right control bits"])
    keys = pair.make_pair(pair.AES128, 0, 1300, 777, roots)
    middle = shown["level 0 left word"] + shown["level 1 left word"] + shown["right control bits"]
    for key, side, root in zip(keys, ("left", "right"), roots, strict=True):
        assert key == shown[f"{side} key's header"] + root + middle + leaf
        assert len(key) == 121
    (known,) = (
        v
        for v in vectors("dpf")
        if (v["index"], v["prg"]) == (777, "aes128") and v["group"] == "bits"
    )
    assert [key.hex() for key in keys] == [known["left_key"], known["right_key"]]
    assert [[pair.share(key, row) for key in keys] for row in (777, 778)] == [[1, 0], [1, 1]]


def test_the_layout_pages_example_is_what_comes_of_it() -> None:
    shown, known = example("layout-format.md"), vectors("batch")[0]
    layout = layouts.Layout(bytes.fromhex(known["layout"]))
    part = layout.full
    assert (layout.rows, layout.row_bytes, layout.ids_max, layout.drop) == (1500, 8, 9, "earliest")
    assert (part.bins, part.queries, part.hashes, part.companions) == (5, 1, 1, 0)
    permutation = part.permutations[0]
    assert layout.version.hex() == shown["layout_version"]
    for key in (0, 5):
        assert permutation.keys[key] == int(shown[f"k_{key} as a number"], 16)
    assert layouts.mix(1) == int(shown["mix(1) as a number"], 16)
    for name, found in {
        "a, b": (permutation.a, permutation.b),
        "P_0(0), P_0(1)": (permutation(0), permutation(1)),
        "slice, leaf_rows": (part.slice, part.leaf_rows),
        "row 0's bin, offset": next(part.places(0)),
        "row 1499's bin, offset": next(part.places(1499)),
    }.items():
        assert numbers(shown[name]) == found
    roots = layouts.roots(bytes(16), 5)
    for key in (0, 4):
        assert roots[key].hex() == shown[f"left's root seed {key}"]
    bits = pair.convert(pair.AES128, roots[0])[:16]
    assert bits.hex() == shown["C of seed 0, 16 bytes"]
    _, right = layouts.request(layout, [0, *[None] * 4], pair.AES128, [bytes(16), bytes(16)])
    assert right[20:36].hex() == shown["right's key 0, 16 bytes"]


def test_the_onion_pages_example_is_what_comes_of_it() -> None:
    shown = example("onion-format.md")
    geometry = onions.Geometry(1, 256, 100_000)
    assert geometry.to_bytes().hex() == shown["geometry"]
    params = geometry.params
    client = onions.Client(geometry, bytes([7]) * 32)
    item, within = divmod(77_777, geometry.rows_per_item)
    message = client.message(38, 0)
    x = np.zeros(params.degree, dtype=np.uint64)
    x[1] = 1
    uniform = onions.uniform(params, bytes(32), 1)
    chance = onions.failure_log2(params, geometry.levels, geometry.d0, geometry.games)
    for name, found in {
        "D0, columns, rows_per_item": (geometry.d0, geometry.columns, geometry.rows_per_item),
        "log2 of the chance": (round(chance, 1),),
        "bytes of keys": (len(client.keys),),
        "row 77,777: item, w": (item, within),
        "its matrix row, column": (item % geometry.d0, item // geometry.d0),
        "its query, coefficient 38": (int(message[0][38]),),
        "X, q0, evaluations 0 to 2": tuple(params.primes[0].forward(x)[:3].tolist()),
        "uniform number 1, q0": tuple(uniform[0][:3].tolist()),
        "uniform number 1, q1": tuple(uniform[1][:3].tolist()),
        "table of errors, 0 and 1": tuple(onions.thresholds()[:2]),
    }.items():
        assert numbers(shown[name]) == found, name
    assert client.mask(item, bytes(16)).hex() == shown["mask of item 2430, 16 bytes"]
    assert client.mask_key.hex() == shown["K"]
    packed = onions.pack(np.array([1, 2, 3], dtype=np.uint64), 50)
    assert packed.hex() == shown["1, 2, 3 packed, 50 bits"]
    assert onions.unpack(packed, 50, 3).tolist() == [1, 2, 3]


@pytest.fixture(scope="module")
def pair_client(deployment: Deployment) -> Iterator[PairClient]:
    ca = deployment.certificates.ca
    urls = (deployment.left.url, deployment.right.url)
    with Peer(urls[0], "PrivateLookup", ca) as left, Peer(urls[1], "PrivateLookup", ca) as right:
        yield PairClient(left, right)


def of_rows(weight: np.ndarray, ids: list[int]) -> list[bytes]:
    return [weight[id].astype("<f4").tobytes() for id in ids]


@pytest.mark.parametrize("prg", PRGS)
def test_rows_of_two_servers(pair_client: PairClient, weight: np.ndarray, prg: str) -> None:
    ids = [0, 511, 512, 777, ROWS - 1, 777]
    for group in pair_client.groups():
        rows = pair_client.lookup(ids, 8, PRGS[prg], group)
        assert rows == of_rows(weight, ids)


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("prg", PRGS)
def test_answers_add_up_in_every_group(prg: str, group: int) -> None:
    """Groups that no server on this machine announces: answers made by the page."""
    row_bytes, rows = 7, 70
    table = np.random.default_rng(5).integers(256, size=(rows, row_bytes), dtype=np.uint8)
    keys = pair.make_pair(PRGS[prg], group, rows, 69)
    answers = []
    for key in keys:
        shares = [pair.share(key, row) for row in range(rows)]
        width = {0: 1, 1: 1, 2: 4}[group]
        padded = np.pad(table, ((0, 0), (0, -row_bytes % width))).view(f"<u{width}")
        kind = padded.dtype
        if group == 0:
            answer = np.bitwise_xor.reduce(padded[np.array(shares) == 1], axis=0, initial=0)
        else:
            answer = (padded * np.array(shares, dtype=kind)[:, None]).sum(axis=0, dtype=kind)
        answers.append(answer.astype(kind).tobytes()[:row_bytes])
    assert pair.add(group, *answers) == table[69].tobytes()


LAYOUTS: dict[str, dict[str, Any]] = {
    # Bins of one leaf in the hot part, with companions, and of one in the full part.
    "hot": {
        "hot": {"rows": 64, "bins": 8, "queries": 2, "hashes": 1, "companions": 1},
        "full": {"rows": ROWS, "bins": 24, "queries": 1, "hashes": 1, "companions": 0},
        "drop": "most-frequent",
    },
    "hot-alone": {
        "hot": {"rows": 64, "bins": 8, "queries": 2, "hashes": 1, "companions": 0},
        "full": {"rows": ROWS, "bins": 24, "queries": 1, "hashes": 1, "companions": 0},
        "drop": "most-frequent",
    },
    "cuckoo": {
        "hot": None,
        "full": {"rows": ROWS, "bins": 30, "queries": 1, "hashes": 3, "companions": 0},
        "drop": "earliest",
    },
    # Bins of several leaves: 3,000 rows, twice, in two bins.
    "large-bins": {
        "hot": {"rows": 40, "bins": 4, "queries": 1, "hashes": 2, "companions": 0},
        "full": {"rows": ROWS, "bins": 2, "queries": 3, "hashes": 2, "companions": 1},
        "drop": "random",
    },
}
IDS_MAX = 24


def lay_out(bundle: Path, to: Path, spec: dict[str, Any]) -> None:
    """The bundle with a layout, which is learned from a trace of its first rows."""
    table = hushtable.Table.open(bundle)
    trace = np.repeat(np.arange(64, dtype=np.uint32), 2)
    profile = _native.Profile(trace, np.arange(0, 129, 16, dtype=np.uint64), len(table))
    text = json.dumps({**spec, "ids_max": IDS_MAX, "seed": "5e" * 32})
    table._native.with_layout(profile.design(table._native, text)).save(to)


@pytest.mark.parametrize("name", LAYOUTS)
def test_bags_of_two_servers(bundle: Path, weight: np.ndarray, tmp_path: Path, name: str) -> None:
    path = tmp_path / "films"
    lay_out(bundle, path, LAYOUTS[name])
    with (
        hushtable.ServerProcess(path, "left", threads=1) as left,
        hushtable.ServerProcess(path, "right", threads=1) as right,
        Peer(left.url, "PrivateLookup") as at_left,
        Peer(right.url, "PrivateLookup") as at_right,
        hushtable.connect(left.url, right.url) as ours,
    ):
        client = PairClient(at_left, at_right)
        layout = client.fetch_layout()
        draw = np.random.default_rng(3)
        sizes, dropped = set(), 0
        for count, prg in zip((0, 1, 9, IDS_MAX), itertools.cycle(PRGS.values()), strict=False):
            # Half of the ids are hot, and some stand twice.
            bag = [
                int(id)
                for id in np.where(
                    draw.random(count) < 0.5,
                    draw.integers(64, size=count),
                    draw.integers(ROWS, size=count),
                )
            ]
            bag[-1:] = bag[:1]
            rows, sent = client.lookup_bag(layout, bag, prg)
            sizes.add(sent)
            kept = list(rows)
            assert set(kept) <= set(bag)
            assert list(rows.values()) == of_rows(weight, kept)
            assert bool(kept) == bool(bag)
            dropped += len(set(bag)) - len(kept)
            if not any(part.companions for part in layout.parts) and layout.drop != "random":
                # What is dropped follows from the rule alone.
                found = ours.lookup_bag(np.array(bag, dtype=np.int64)).kept
                assert {id for id, is_kept in zip(bag, found, strict=True) if is_kept} == set(kept)
        assert len(sizes) == 1, "a request's size depends on the layout alone"
        assert (dropped == 0) == (name == "cuckoo")


@pytest.mark.parametrize("parameters", ["n4096_128", "ive_paper"])
def test_rows_of_one_server(
    bundle: Path, weight: np.ndarray, tmp_path: Path, parameters: str
) -> None:
    with (
        hushtable.ServerProcess(
            bundle, scheme="onion", threads=1, prepared="none", parameters=parameters
        ) as server,
        Peer(server.url, "OnionLookup") as peer,
    ):
        client = OnionClient(peer, [parameters])
        with pytest.raises(grpc.RpcError) as refused:
            client.lookup([1], 1)
        assert refused.value.code() == grpc.StatusCode.NOT_FOUND
        assert not client.upload().held
        ids = [0, 1, 777, ROWS - 1]
        assert client.lookup(ids, 6) == of_rows(weight, ids)


def test_rows_of_several_plaintexts_from_one_server(tmp_path: Path) -> None:
    weight = np.random.default_rng(8).normal(size=(50, 5000)).astype(np.float32)
    hushtable.Table.from_weight(weight, name="long").save(tmp_path / "long")
    with (
        hushtable.ServerProcess(
            tmp_path / "long", scheme="onion", threads=1, prepared="none"
        ) as server,
        Peer(server.url, "OnionLookup") as peer,
    ):
        client = OnionClient(peer)
        assert client.client.geometry.chunks == 3
        client.upload()
        assert client.lookup([49, 0], 2) == of_rows(weight, [49, 0])
