"""The one door to servers: its schemes, its options, what it refuses before anybody is asked."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Deployment
from test_cli import run
from test_infer import build, logits, users
from waiting import HUNG_S, held_port

import hushtable
from hushtable import ClientOptions, ConfigError, ProtocolError, _native, infer
from hushtable.client.connecting import SCHEMES, _kind
from hushtable.client.reach import Reach, Urls

OPTIONS = {field.name: field for field in dataclasses.fields(ClientOptions)}
#: Of each option a value that is not its default.
OTHER: dict[str, Any] = {
    "timeout": 3.0,
    "connect_timeout": 3.0,
    "insecure": True,
    "max_ids": 4,
    "prg": "chacha20",
    "max_layout_bytes": 0,
    "parameter_sets": ("ive_paper",),
    "upload_timeout": 3.0,
    "key_bytes_max": 1,
    "progress": print,
    "garbler": "client",
    "parallel": "request",
    "steps": 1,
    "retry_timeout": 3.0,
    "up_mbps": 1.0,
    "down_mbps": 1.0,
    "store": "mine",
    "store_key": "key",
    "store_ledger": "ledgers",
    "store_bytes_max": 1 << 40,
    "dealer": "client",
    "inferences": 1,
}
#: The kinds of clients, by the schemes that they ask by.
KINDS = {**{scheme: scheme for scheme in SCHEMES}, "model": "pair"}


def servers(scheme: str) -> dict[str, str]:
    """Where nobody listens."""
    gone = "http://127.0.0.1:1"
    return {"server": gone} if SCHEMES[scheme] == 1 else {"left": gone, "right": gone}  # type: ignore[index]


def schemes_of(option: str) -> tuple[str, ...]:
    return tuple(OPTIONS[option].metadata.get("schemes", SCHEMES))


@pytest.fixture(scope="module")
def encrypted(
    tmp_path_factory: pytest.TempPathFactory, certificates: hushtable.Certificates
) -> Iterator[infer.ServerProcess]:
    folder = tmp_path_factory.mktemp("connecting")
    infer.compile(build(folder), spec=folder / "model.toml")
    with infer.ServerProcess(folder / "clicks", tls=certificates.server, threads=1) as server:
        yield server


def test_every_option_is_some_schemes() -> None:
    assert OTHER.keys() == OPTIONS.keys()
    for name, field in OPTIONS.items():
        assert schemes_of(name) and set(schemes_of(name)) <= set(SCHEMES)
        assert OTHER[name] != field.default
        assert f"        {name}: " in (ClientOptions.__doc__ or "")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_option_of_another_scheme_is_refused_by_name(scheme: Any) -> None:
    for name, value in OTHER.items():
        options = ClientOptions(**{name: value})
        if scheme in schemes_of(name):
            options.check(scheme)
            continue
        with pytest.raises(ConfigError, match=f"^{name} is an option of {schemes_of(name)[0]}"):
            hushtable.connect(**servers(scheme), scheme=scheme, options=options)


class Watched:
    """Options that tell which of them are read."""

    def __init__(self) -> None:
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(ClientOptions(), name)


@pytest.mark.parametrize("kind", KINDS)
def test_no_option_is_passed_over(kind: str) -> None:
    """What a client reads of its options is what is documented as its scheme's."""
    scheme, options = KINDS[kind], Watched()
    two = ["http://127.0.0.1:1"] if SCHEMES[scheme] == 2 else None  # type: ignore[index]
    reach = Reach(kind, Urls(["http://127.0.0.1:1"], two), None, None, options)  # type: ignore[arg-type]
    with pytest.raises(hushtable.ServerUnavailable):
        _native.Client(kind, reach)
    # Lookups are padded here, not by the native client.
    assert options.read == {
        name for name in OPTIONS if scheme in schemes_of(name) and name != "max_ids"
    }


def test_kinds_are_those_of_the_native_module() -> None:
    reach = Reach("toy", Urls(["http://127.0.0.1:1"], None), None, None, ClientOptions())
    with pytest.raises(ConfigError, match='no clients are of "toy"'):
        _native.Client("toy", reach)
    assert {kind: _kind(kind).scheme for kind in KINDS} == KINDS


def test_a_client_is_asked_for_what_its_scheme_answers(deployment: Deployment) -> None:
    with deployment.connect() as client:
        native = client._native
        for call, given in (("predict", ()), ("lookup", ()), ("lookup", ([3], 4))):
            with pytest.raises(TypeError, match="is not asked for|takes an array"):
                native.ask(call, *given)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_as_many_servers_as_the_scheme_takes(scheme: Any) -> None:
    other = "onion" if SCHEMES[scheme] == 2 else "pair"
    with pytest.raises(ConfigError, match=f"which servers. {scheme} takes"):
        hushtable.connect(**servers(other), scheme=scheme)
    with pytest.raises(hushtable.ServerUnavailable):
        hushtable.connect(**servers(scheme), scheme=scheme, options=ClientOptions(timeout=5))


def test_models_are_of_pairs() -> None:
    for asked in ({"scheme": "shares", **servers("shares")}, servers("onion")):
        with pytest.raises(ConfigError, match="leave it out with|give left= and right="):
            hushtable.connect(**asked, model=True)
    with pytest.raises(ConfigError, match="options must be a ClientOptions"):
        hushtable.connect(**servers("pair"), options={"timeout": 3})
    with pytest.raises(ConfigError, match="leave max_ids out"):
        hushtable.connect(**servers("pair"), model=True, options=ClientOptions(max_ids=3))


def test_both_doors_take_the_same() -> None:
    one, other = map(inspect.signature, (hushtable.connect, hushtable.connect_async))
    assert one == other


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_ids": 0}, "max_ids must be at least 1"),
        ({"max_ids": 1.5}, "max_ids must be a whole number"),
        ({"max_layout_bytes": -1}, "max_layout_bytes must be a whole number of at least 0"),
        ({"key_bytes_max": -1}, "key_bytes_max must be a whole number"),
        ({"steps": 0}, "steps must be a whole number of at least 1"),
        ({"store_bytes_max": None}, "store_bytes_max must be a whole number"),
        ({"parameter_sets": None}, "must list one or more"),
        ({"parameter_sets": ()}, "must list one or more"),
        ({"parameter_sets": "n4096_128"}, "must list one or more"),
        ({"garbler": "nobody"}, "garbler is nobody"),
        ({"inferences": "3"}, "inferences is 3, but must be 1 to 65536"),
        ({"inferences": 0}, "inferences is 0"),
        ({"inferences": 1 << 17}, "1 to 65536"),
    ],
)
def test_options_that_cannot_work(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ClientOptions(**options)


def test_a_single_server_is_asked_what_it_speaks(
    encrypted: infer.ServerProcess,
    bundle: Path,
    certificates: hushtable.Certificates,
    weight: np.ndarray,
) -> None:
    tls = certificates.ca
    with hushtable.ServerProcess(
        bundle, scheme="onion", tls=certificates.server, threads=1
    ) as onion:
        with hushtable.connect(server=onion.url, tls=tls) as client:
            assert isinstance(client, hushtable.Client)
            assert np.array_equal(client.lookup([7]), weight[[7]])
        with pytest.raises(ProtocolError):
            hushtable.connect(server=onion.url, scheme="ckks", tls=tls)
    # The first of an operator's servers is gone: the next one says.
    with held_port() as port:
        gone = f"https://127.0.0.1:{port}"
        with hushtable.connect(server=[gone, encrypted.url], tls=tls) as client:
            assert isinstance(client, infer.CkksClient)
        with pytest.raises(hushtable.ServerUnavailable):
            hushtable.connect(server=gone, tls=tls)

    async def ask() -> None:
        async with await hushtable.connect_async(server=encrypted.url, tls=tls) as client:
            assert isinstance(client, infer.AsyncCkksClient)
            with pytest.raises(ConfigError, match="AsyncCkksClient cannot be copied or pickled"):
                pickle.dumps(client)

    asyncio.run(ask())


def test_a_client_that_predicts_goes_to_another_process(
    encrypted: infer.ServerProcess, certificates: hushtable.Certificates
) -> None:
    dense, sparse = users(2)
    # Whom it tells of uploads cannot be pickled, and stays here.
    told: list[int] = []
    client = hushtable.connect(
        server=encrypted.url,
        tls=certificates.ca,
        options=ClientOptions(timeout=120, progress=lambda done, _all: told.append(done)),
    )
    kept = pickle.dumps(client)
    client.close()
    with pickle.loads(kept) as other:
        found = other.predict(dense, sparse)
    np.testing.assert_allclose(found.logits, logits(1, dense, sparse), atol=2**-6)
    assert not told
    with pytest.raises(ConfigError, match="it is closed"):
        pickle.dumps(client)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("infer query --left http://127.0.0.1:1 --dense 1", "give --left and --right"),
        ("infer query --left-ca a --right-ca b --dense 1", "are for --left and --right"),
        ("infer query --server http://127.0.0.1:1 --left-ca a --right-ca b", "are for --left"),
        ("lookup 3 --certificate a --ca b", "needs both: --certificate and --key"),
        ("lookup 3 --server http://127.0.0.1:1 --left http://127.0.0.1:1", "--server alone"),
        (
            "lookup 3 --left http://127.0.0.1:1 --right http://127.0.0.1:1 "
            "--parameter-set ive_paper",
            "--parameter-set is for a single server",
        ),
    ],
)
def test_commands_speak_of_their_own_options(arguments: str, text: str) -> None:
    done = run(*arguments.split())
    assert done.returncode in (1, 2)
    assert text in done.stderr


@pytest.mark.parametrize(
    "call",
    [
        "hushtable.connect(url, url, tls=ca, options=patient)",
        "hushtable.connect(server=url, tls=ca, options=patient)",
        "hushtable.connect(server=url, scheme='hybrid', tls=ca, options=patient)",
        "push_bundle(bundle, url, token_file=token, tls=ca, connect_seconds=600)",
    ],
)
def test_ctrl_c_ends_a_connect_to_a_silent_server(
    call: str, bundle: Path, certificates: hushtable.Certificates, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("a token of more than thirty-two characters\n")
    code = (
        "import sys, hushtable\n"
        "from hushtable.push import push_bundle\n"
        "url, bundle, token, ca = sys.argv[1:]\n"
        "patient = hushtable.ClientOptions(connect_timeout=600)\n"
        f"try:\n    {call}\n"
        "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(HUNG_S)
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        arguments = [sys.executable, "-c", code, url, *map(str, (bundle, token, certificates.ca))]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as child:
            # Whoever is there waits for an answer to a first message, which does not come.
            met, _ = silent.accept()
            with met:
                met.settimeout(HUNG_S)
                assert met.recv(1)
                child.send_signal(signal.SIGINT)
                said, _ = child.communicate(timeout=HUNG_S)
    assert said == "interrupted\n"
    assert child.returncode == 0
