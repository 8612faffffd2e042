"""The data loaders, on tiny files of the real formats, and fetching by the real pip and npm.

The packages are made here. pip is pointed at the folder they are in and npm at a registry on
loopback, so no network is needed.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import lzma
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from hushtable import data
from hushtable.data import Member, Source, _png

FILMS = (
    "item_id:token\tmovie_title:token\trelease_year:float\tgenre:token\r\n"
    "Heat (1995)\tHeat\t1995\tAction Crime\r\n"
    "Nobody Saw It (1990)\tNobody Saw It\t1990\tDrama\r\n"
    "Amélie (2001)\tAmélie\t2001\tComedy\r\n"
)
RATINGS = (
    "user_id:token\titem_id:token\trating:float\ttimestamp:float\r\n"
    "1m_7\tAmélie (2001)\t5\t978300760\r\n"
    "1m_7\tHeat (1995)\t3\t978302109\r\n"
    "1m_2\tHeat (1995)\t1\t978301968\r\n"
)


def write_movielens(folder: Path, ratings: str = RATINGS, films: str = FILMS) -> Path:
    (folder / "ml-1m.inter").write_bytes(ratings.encode())
    (folder / "ml-1m.item").write_bytes(films.encode())
    return folder


def test_ratings_are_numbered_by_the_film_list_without_gaps(tmp_path: Path) -> None:
    ratings = data.load_movielens(write_movielens(tmp_path))
    assert ratings.users == ("1m_7", "1m_2")
    assert ratings.titles == ("Heat (1995)", "Amélie (2001)")
    assert ratings.genres == (("Action", "Crime"), ("Comedy",))
    assert ratings.user.tolist() == [0, 0, 1]
    assert ratings.item.tolist() == [1, 0, 0]
    assert ratings.rating.tolist() == [5.0, 3.0, 1.0]
    assert ratings.time.tolist() == [978300760, 978302109, 978301968]


@pytest.mark.parametrize(
    ("broken", "line", "says"),
    [
        (RATINGS.replace("user_id", "user"), 1, "the header is"),
        (RATINGS.replace("\t3\t", "\tthree\t"), 3, "must be numbers"),
        (RATINGS.replace("\t3\t978302109", "\t3"), 3, "3 tab-separated fields, expected 4"),
        (RATINGS.replace("1m_2\tHeat", "1m_2\tHeap"), 4, "'Heap (1995)' is not in ml-1m.item"),
        (RATINGS.split("1m_7", maxsplit=1)[0], 0, "no ratings"),
        ("", 1, "the header is"),
    ],
)
def test_a_malformed_rating_names_file_and_line(
    tmp_path: Path, broken: str, line: int, says: str
) -> None:
    write_movielens(tmp_path, ratings=broken)
    with pytest.raises(data.MalformedData, match=r"ml-1m\.inter") as caught:
        data.load_movielens(tmp_path)
    assert caught.value.line == line
    assert says in str(caught.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    write_movielens(tmp_path)
    (tmp_path / "ml-1m.inter").write_bytes(RATINGS.encode("latin-1"))
    with pytest.raises(data.MalformedData, match="not UTF-8"):
        data.load_movielens(tmp_path)


def test_a_missing_file_says_to_fetch_it(tmp_path: Path) -> None:
    with pytest.raises(data.DataError, match="fetch it"):
        data.load_movielens(tmp_path)


def write_words(folder: Path, words: list[str], vectors: np.ndarray) -> Path:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    import pyarrow as pa

    parquet.write_table(pa.table({"index": words}), folder / "glove_6B_index.parquet")
    np.save(folder / "glove_6B_50d_emb.npy", vectors)
    return folder


def test_words_keep_their_order_and_vectors(tmp_path: Path) -> None:
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    loaded = data.load_words(write_words(tmp_path, ["the", ",", "naïve"], vectors))
    assert loaded.words == ("the", ",", "naïve")
    assert np.array_equal(loaded.vectors, vectors)


def test_words_and_vectors_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    write_words(tmp_path, ["one"], np.zeros((2, 2), np.float32))
    with pytest.raises(data.MalformedData, match="1 words for 2 vectors"):
        data.load_words(tmp_path)
    write_words(tmp_path, ["one", "two"], np.zeros((2, 2), np.float64))
    with pytest.raises(data.MalformedData, match="expected float32"):
        data.load_words(tmp_path)
    (tmp_path / "glove_6B_50d_emb.npy").write_bytes(b"\x93NUMPY truncated")
    with pytest.raises(data.MalformedData, match=r"not a readable \.npy"):
        data.load_words(tmp_path)


CONTENT = b"42 is a number\n" * 1000


def make_wheel(folder: Path, content: bytes = CONTENT, member: str = "tiny/data/a.txt") -> Path:
    folder.mkdir(exist_ok=True)
    wheel = folder / "hushtable_tiny_fixture-1.0.0-py3-none-any.whl"
    info = "hushtable_tiny_fixture-1.0.0.dist-info"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr("tiny/__init__.py", "raise SystemExit('this must never run')")
        archive.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: hushtable-tiny-fixture\nVersion: 1.0.0\n",
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


SOURCE = Source(
    name="tiny",
    title="A tiny fixture",
    package="hushtable-tiny-fixture",
    version="1.0.0",
    licence="CC0",
    members=(Member("tiny/data/a.txt", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT)),),
)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its only index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


def test_fetch_brings_the_file_says_its_terms_and_then_needs_no_pip(
    tmp_path: Path, index: Path
) -> None:
    wheel = make_wheel(index)
    said: list[str] = []
    home = data.fetch(SOURCE, folder=tmp_path / "cache", say=said.append)
    assert (home / "a.txt").read_bytes() == CONTENT
    assert "hushtable-tiny-fixture==1.0.0" in said[0]
    assert "CC0" in said[0]
    # Nothing else stays behind, neither the wheel nor what was unpacked aside.
    assert [path.name for path in (tmp_path / "cache").rglob("*")] == ["tiny", "a.txt"]
    wheel.unlink()
    assert data.fetch(SOURCE, folder=tmp_path / "cache") == home


def test_a_flipped_bit_in_the_cache_is_fetched_again(tmp_path: Path, index: Path) -> None:
    make_wheel(index)
    home = data.fetch(SOURCE, folder=tmp_path / "cache")
    (home / "a.txt").write_bytes(bytes([CONTENT[0] ^ 1]) + CONTENT[1:])
    data.fetch(SOURCE, folder=tmp_path / "cache")
    assert (home / "a.txt").read_bytes() == CONTENT


def test_another_content_is_refused_and_nothing_is_kept(tmp_path: Path, index: Path) -> None:
    make_wheel(index, bytes([CONTENT[0] ^ 1]) + CONTENT[1:])
    with pytest.raises(data.WrongHash) as caught:
        data.fetch(SOURCE, folder=tmp_path / "cache")
    assert caught.value.expected == SOURCE.members[0].sha256
    assert caught.value.found != caught.value.expected
    assert not (tmp_path / "cache" / "tiny" / "a.txt").exists()


def test_another_size_is_refused_before_it_is_unpacked(tmp_path: Path, index: Path) -> None:
    make_wheel(index, CONTENT + bytes(1 << 20))
    with pytest.raises(data.ArchiveError, match="15,000 were expected"):
        data.fetch(SOURCE, folder=tmp_path / "cache")


def test_a_package_without_the_file_is_refused(tmp_path: Path, index: Path) -> None:
    make_wheel(index, member="tiny/data/b.txt")
    with pytest.raises(data.ArchiveError, match=r"no file tiny/data/a\.txt"):
        data.fetch(SOURCE, folder=tmp_path / "cache")


def test_no_package_says_what_to_do(tmp_path: Path, index: Path) -> None:
    index.mkdir()
    with pytest.raises(data.DownloadFailed, match="pip config list"):
        data.fetch(SOURCE, folder=tmp_path / "cache")


def make_tarball(content: bytes = CONTENT) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        about = {"name": "tiny-fixture", "version": "1.0.0", "scripts": {"prepare": "exit 9"}}
        for name, one in (("package.json", json.dumps(about).encode()), ("a.txt", content)):
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(one)
            archive.addfile(info, io.BytesIO(one))
    return packed.getvalue()


TARBALL = make_tarball()
NPM_SOURCE = Source(
    name="tiny-npm",
    title="A tiny fixture",
    package="tiny-fixture",
    version="1.0.0",
    licence="CC0",
    members=(Member("tiny-fixture-1.0.0.tgz", hashlib.sha256(TARBALL).hexdigest(), len(TARBALL)),),
    registry="npm",
)


@pytest.fixture(params=["npm", "without npm"])
def registry(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, bytes]]:
    """Tarballs by path, on a server that npm takes for its registry."""
    tarballs: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = tarballs.get(self.path)
            if self.path == "/tiny-fixture" and tarballs:
                ((path, tarball),) = tarballs.items()
                dist = {
                    "tarball": f"{url}{path}",
                    "integrity": "sha512-"
                    + base64.b64encode(hashlib.sha512(tarball).digest()).decode(),
                }
                version = {"name": "tiny-fixture", "version": "1.0.0", "dist": dist}
                answer = json.dumps(
                    {
                        "name": "tiny-fixture",
                        "dist-tags": {"latest": "1.0.0"},
                        "versions": {"1.0.0": version},
                    }
                ).encode()
            self.send_response(200 if answer else 404)
            self.send_header("Content-Length", str(len(answer or b"")))
            self.end_headers()
            self.wfile.write(answer or b"")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("NPM_CONFIG_REGISTRY", url)
        monkeypatch.setenv("NPM_CONFIG_CACHE", str(tmp_path / "npm-cache"))
        monkeypatch.setenv("NPM_CONFIG_FETCH_RETRIES", "0")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        if request.param == "without npm":
            monkeypatch.setenv("PATH", str(tmp_path))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield tarballs
        server.shutdown()
        thread.join()


def test_an_npm_package_is_kept_as_it_came_and_then_needs_no_registry(
    tmp_path: Path, registry: dict[str, bytes]
) -> None:
    registry["/tiny-fixture/-/tiny-fixture-1.0.0.tgz"] = TARBALL
    said: list[str] = []
    home = data.fetch(NPM_SOURCE, folder=tmp_path / "cache", say=said.append)
    assert (home / "tiny-fixture-1.0.0.tgz").read_bytes() == TARBALL
    assert "tiny-fixture@1.0.0 (npm)" in said[0]
    assert [path.name for path in home.parent.rglob("*")] == ["tiny-npm", "tiny-fixture-1.0.0.tgz"]
    registry.clear()
    assert data.fetch(NPM_SOURCE, folder=tmp_path / "cache") == home


def test_another_tarball_is_refused_by_its_size_and_by_its_hash(
    tmp_path: Path, registry: dict[str, bytes]
) -> None:
    registry["/tiny-fixture/-/tiny-fixture-1.0.0.tgz"] = make_tarball(bytes(1 << 22)) + bytes(9)
    with pytest.raises(data.ArchiveError, match=f"{len(TARBALL):,} were expected"):
        data.fetch(NPM_SOURCE, folder=tmp_path / "cache")
    (member,) = NPM_SOURCE.members
    expecting = replace(NPM_SOURCE, members=(replace(member, sha256="0" * 64),))
    registry["/tiny-fixture/-/tiny-fixture-1.0.0.tgz"] = TARBALL
    with pytest.raises(data.WrongHash) as caught:
        data.fetch(expecting, folder=tmp_path / "other")
    assert caught.value.found == member.sha256


def test_no_npm_package_says_what_to_do(tmp_path: Path, registry: dict[str, bytes]) -> None:
    with pytest.raises(data.DownloadFailed, match="npm config get registry") as caught:
        data.fetch(NPM_SOURCE, folder=tmp_path / "cache")
    assert "404" in str(caught.value)
    assert not registry


def test_the_command_lists_and_refuses_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hushtable.data"]
    listed = subprocess.run([*command, "list"], capture_output=True, text=True, check=True)
    for source in data.SOURCES.values():
        assert source.requirement in listed.stdout
        assert source.licence in listed.stdout
    refused = subprocess.run(
        [*command, "fetch", "ml-2m"], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "'ml-2m'" in refused.stderr
    assert "ml-1m" in refused.stderr


def test_a_trace_from_maven_is_numbered_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [30, -5, 30, 1 << 40, 7]
    packed = lzma.compress(b"".join(key.to_bytes(8, "big", signed=True) for key in keys))
    folder = tmp_path / "maven" / "org" / "example" / "simulator" / "1.0"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "simulator-1.0.jar", "w") as jar:
        jar.writestr("traces/keys.xz", packed)
    monkeypatch.setenv("HUSHTABLE_MAVEN", (tmp_path / "maven").as_uri())
    member = data.Member("traces/keys.xz", hashlib.sha256(packed).hexdigest(), len(packed))
    source = data.Source(
        name="keys",
        title="keys",
        package="org.example:simulator",
        version="1.0",
        licence="Apache-2.0",
        members=(member,),
        registry="Maven",
    )
    home = data.fetch(source, folder=tmp_path / "cache")
    assert data.load_requests(home).tolist() == [2, 0, 2, 3, 1]

    (home / "keys.xz").write_bytes(packed[:-9])
    with pytest.raises(data.MalformedData, match="not whole"):
        data.load_requests(home)
    (home / "keys.xz").write_bytes(lzma.compress(b"seven.."))
    with pytest.raises(data.MalformedData, match="64-bit keys"):
        data.load_requests(home)
    (home / "keys.xz").unlink()
    with pytest.raises(data.MalformedData, match="0 .xz files"):
        data.load_requests(home)
    missing = replace(source, version="2.0")
    with pytest.raises(data.DownloadFailed, match="HUSHTABLE_MAVEN"):
        data.fetch(missing, folder=tmp_path / "other")


HEART_HEADER = (
    "age\tgender\tchest pain\trest SBP\tcholesterol\tfasting blood sugar > 120\trest ECG\tmax HR\t"
    "exerc ind ang\tST by exercise\tslope peak exc ST\tmajor vessels colored\tthal\t"
    "diameter narrowing\n"
    "c\td\td\tc\tc\td\td\tc\td\tc\td\tc\td\td\n"
    "\t\t\t\t\t\t\t\t\t\t\t\t\tclass\n"
)
HEART_PATIENTS = (
    "63\tmale\ttypical ang\t145\t233\t1\tleft vent hypertrophy\t150\t0\t2.3\tdownsloping\t0\t"
    "fixed defect\t0\n"
    "53\tfemale\tnon-anginal\t128\t216\t0\tnormal\t115\t1\t0\tupsloping\t3\t?\t1\n"
)


def test_patients_are_read_by_their_columns(tmp_path: Path) -> None:
    (tmp_path / "heart_disease.tab").write_text(HEART_HEADER + HEART_PATIENTS)
    heart = data.load_heart(tmp_path)
    assert len(heart) == 2
    np.testing.assert_allclose(heart.dense, [[63, 145, 233, 150, 2.3], [53, 128, 216, 115, 0]])
    assert heart.indices.tolist() == [[1, 0, 1, 2, 0, 2, 0, 1], [0, 2, 0, 0, 1, 0, 3, -1]]
    assert heart.ill.tolist() == [False, True]
    assert [len(values) for values in data.HEART_SPARSE.values()] == [2, 4, 2, 3, 2, 3, 4, 3]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (HEART_HEADER, 0, "no patients"),
        ("", 0, "the columns are"),
        (HEART_HEADER.replace("thal", "thalium") + HEART_PATIENTS, 0, "the columns are"),
        (HEART_HEADER + HEART_PATIENTS.replace("\tmale", "\tman"), 4, "a value that no column has"),
        (HEART_HEADER + HEART_PATIENTS.replace("128", "high"), 5, "a value that no column has"),
        (HEART_HEADER + HEART_PATIENTS.replace("\t?\t", "\t"), 5, "13 tab-separated fields"),
        (HEART_HEADER + HEART_PATIENTS.replace("\t1\n", "\t2\n"), 5, "a value that no column has"),
    ],
)
def test_a_malformed_patient_names_file_and_line(
    tmp_path: Path, text: str, line: int, says: str
) -> None:
    (tmp_path / "heart_disease.tab").write_text(text)
    with pytest.raises(data.MalformedData, match=says) as caught:
        data.load_heart(tmp_path)
    assert caught.value.line == line
    assert caught.value.path.name == "heart_disease.tab"


def test_patients_that_are_not_there_are_to_be_fetched(tmp_path: Path) -> None:
    with pytest.raises(data.DataError, match="fetch it again"):
        data.load_heart(tmp_path)
    (tmp_path / "heart_disease.tab").write_bytes(b"\xff\xfe")
    with pytest.raises(data.MalformedData, match="not UTF-8"):
        data.load_heart(tmp_path)


def png(pixels: np.ndarray, filters: list[int]) -> bytes:
    """A picture with these filters, by the definition of each."""
    rows, columns, _ = pixels.shape
    raw = b""
    for row in range(rows):
        line = bytearray([filters[row]])
        for column in range(columns):
            for colour in range(3):

                def at(up: int, left: int, row: int = row, column: int = column) -> int:
                    if row < up or column < left:
                        return 0
                    return int(pixels[row - up, column - left, colour])  # noqa: B023

                left, up, corner = at(0, 1), at(1, 0), at(1, 1)
                guess = left + up - corner
                far = [abs(guess - one) for one in (left, up, corner)]
                near = (left, up, corner)[far.index(min(far))]
                before = [0, left, up, (left + up) // 2, near][filters[row]]
                line.append((at(0, 0) - before) % 256)
        raw += bytes(line)
    packed = zlib.compress(raw)
    header = columns.to_bytes(4) + rows.to_bytes(4) + bytes([8, 2, 0, 0, 0])
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        len(body).to_bytes(4) + kind + body + bytes(4)
        for kind, body in ((b"IHDR", header), (b"tEXt", b"x"), (b"IDAT", packed), (b"IEND", b""))
    )


def test_pictures_are_read_whatever_their_filters() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (10, 7, 3), dtype=np.uint8)
    for filters in ([0] * 10, [4, 3, 2, 1, 0] * 2, [1, 2, 3, 4, 4] * 2):
        np.testing.assert_array_equal(_png.pixels(png(pixels, filters)), pixels)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (lambda image: image[1:], "signature"),
        (lambda image: image[:8], "header"),
        (lambda image: image.replace(b"\x08\x02\x00\x00\x00", b"\x08\x06\x00\x00\x00"), "8-bit"),
        (lambda image: image[:50], "cannot be unpacked|bytes of pixels"),
        (lambda image: image[:16] + b"\xff\xff\xff\xff" + image[20:], "at most 4096"),
    ],
)
def test_pictures_that_cannot_be_are_refused(broken: Callable[[bytes], bytes], says: str) -> None:
    image = png(np.zeros((3, 3, 3), np.uint8), [0, 0, 0])
    with pytest.raises(ValueError, match=says):
        _png.pixels(broken(image))


def test_images_come_with_the_labels_of_their_names(tmp_path: Path) -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    wheel = tmp_path / "foolbox-3.3.4-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("foolbox/data/cifar10_01_8.png", png(pixels[1], [2] * 32))
        archive.writestr("foolbox/data/cifar10_00_3.png", png(pixels[0], [4] * 32))
        archive.writestr("foolbox/data/cifar100_00_49.png", b"another set")
    images = data.load_cifar(tmp_path)
    assert images.labels.tolist() == [3, 8]
    np.testing.assert_array_equal(images.pixels, pixels.transpose(0, 3, 1, 2))
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("foolbox/data/cifar10_00_3.png", b"no picture")
    with pytest.raises(data.MalformedData, match="signature"):
        data.load_cifar(tmp_path)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("foolbox/other", b"")
    with pytest.raises(data.MalformedData, match="no images"):
        data.load_cifar(tmp_path)


def test_the_small_resnet_is_taken_out_of_its_archive(tmp_path: Path) -> None:
    archive = tmp_path / "image_classification.mltk.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("image_classification.h5", b"weights")
    found = data.load_cifar_resnet(tmp_path, tmp_path)
    assert found.read_bytes() == b"weights"
    archive.write_bytes(b"no archive")
    with pytest.raises(data.MalformedData, match="image_classification.h5"):
        data.load_cifar_resnet(tmp_path, tmp_path)


def test_a_list_that_is_read_in_part_is_no_error() -> None:
    # Nobody reads any more when it begins.
    read, written = os.pipe()
    os.close(read)
    with os.fdopen(written, "wb") as pipe:
        command = [sys.executable, "-m", "hushtable.data", "list"]
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (141, "")
