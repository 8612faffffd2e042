"""What Garimella et al. measured of hybrid private inference with DELPHI, from their repository.

"Characterizing and Optimizing End-to-End Systems for Private Inference", ASPLOS 2023; the figures
are those of github.com/kvgarimella/characterizing-private-inference (MIT, commit 4dab8f9): servers
are an EPYC 7502, clients an Atom.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NETWORKS", "PaperNetwork", "network"]

#: Bytes of a ReLU: kept by who garbles, kept by who evaluates; garbled circuits on the wire;
#: oblivious transfer to the server and back; labels online.
GARBLER_BYTES = 3_590
EVALUATOR_BYTES = 18_248
CIRCUIT_BYTES = 17_072
TRANSFER_BYTES = (672, 1_344)
LABEL_BYTES = 1_184
#: The evaluation keys that a client uploads.
KEY_BYTES = 33_180_308
KEYGEN_SECONDS = 0.34
#: Seconds of a ReLU, one thread: garbled and evaluated by the server, and by the client.
SERVER_GARBLE = 1.03742703e-4
SERVER_EVALUATE = 5.456424e-5
CLIENT_GARBLE = 6.8676e-4
CLIENT_EVALUATE = 3.4595006e-4
#: Threads of the server's garbling in Table 1, and of the client.
SERVER_THREADS = 32
CLIENT_THREADS = 4


@dataclass(frozen=True, slots=True)
class PaperNetwork:
    """One network on images of one size.

    Attributes:
        name: as `hushtable bench hybrid` has it.
        size: rows and columns of an image.
        relus: numbers that go through ReLUs.
        he_seconds: of all linear layers on the server, on one thread and on one a layer.
        he_client_seconds: encrypting and decrypting.
        encode_seconds: writing labels, offline and online.
        he_up_bytes: ciphertexts to the server, without keys.
        he_down_bytes: and back.
        shares_seconds: online, on the server.
        online_up_bytes: shares to the server, where the server garbles.
    """

    name: str
    size: int
    relus: int
    he_seconds: tuple[float, float]
    he_client_seconds: float
    encode_seconds: tuple[float, float]
    he_up_bytes: int
    he_down_bytes: int
    shares_seconds: float
    online_up_bytes: int

    @property
    def title(self) -> str:
        """For people: R18 with TinyImageNet's sizes is T-R18, as in the paper."""
        short = {"resnet32": "R32", "vgg16": "VGG", "resnet18": "R18"}[self.name]
        return f"{'C' if self.size == 32 else 'T'}-{short}"

    def client_bytes(self, *, client_garbles: bool) -> int:
        """What a client keeps of a precompute's circuits (Figures 3 and 8)."""
        return self.relus * (GARBLER_BYTES if client_garbles else EVALUATOR_BYTES)

    def traffic(self, *, client_garbles: bool) -> tuple[int, int]:
        """Bytes to the server and back, offline and online."""
        up = KEY_BYTES + self.he_up_bytes
        down = self.he_down_bytes
        circuits, labels = self.relus * CIRCUIT_BYTES, self.relus * LABEL_BYTES
        to_server, to_client = (self.relus * each for each in TRANSFER_BYTES)
        if client_garbles:
            # Extended transfers are online, the other way around.
            return up + circuits + to_client, down + to_server
        return up + to_server + self.online_up_bytes, down + circuits + to_client + labels

    def seconds(self, *, client_garbles: bool) -> tuple[float, float]:
        """Computing, offline and online: HE on one thread, the paper's threads for circuits."""
        he = KEYGEN_SECONDS + self.he_seconds[0] + self.he_client_seconds
        encode = self.encode_seconds
        if client_garbles:
            garble = CLIENT_GARBLE * self.relus / CLIENT_THREADS
            evaluate = SERVER_EVALUATE * self.relus / SERVER_THREADS
        else:
            garble = SERVER_GARBLE * self.relus / SERVER_THREADS
            evaluate = CLIENT_EVALUATE * self.relus / CLIENT_THREADS
        return he + garble + encode[0], evaluate + encode[1] + self.shares_seconds


NETWORKS: tuple[PaperNetwork, ...] = (
    PaperNetwork(
        "resnet32",
        32,
        303_104,
        (39.055, 2.630),
        1.8411,
        (2.1203, 1.2225),
        198_273_242,
        24_646_727,
        0.2802,
        2_729_248,
    ),
    PaperNetwork(
        "vgg16",
        32,
        276_480,
        (187.157, 22.535),
        1.1601,
        (2.295, 0.7949),
        124_281_269,
        20_451_455,
        0.5411,
        1_747_088,
    ),
    PaperNetwork(
        "resnet18",
        32,
        557_056,
        (292.407, 36.511),
        2.9303,
        (4.225, 1.9915),
        321_453_053,
        47_195_514,
        0.4277,
        4_986_594,
    ),
    PaperNetwork(
        "resnet32",
        64,
        1_212_416,
        (111.509, 8.698),
        6.2651,
        (8.8786, 4.267),
        699_016_125,
        87_573_887,
        0.4601,
        10_913_056,
    ),
    PaperNetwork(
        "vgg16",
        64,
        1_105_920,
        (498.815, 73.443),
        4.0627,
        (8.381, 3.7548),
        431_051_162,
        72_366_362,
        0.7234,
        6_765_200,
    ),
    PaperNetwork(
        "resnet18",
        64,
        2_228_224,
        (1_066.196, 140.957),
        11.8874,
        (17.8864, 7.2057),
        1_274_799_467,
        187_208_445,
        0.6102,
        19_944_162,
    ),
)


def network(name: str, size: int) -> PaperNetwork | None:
    """What the paper measured of a network; None where it did not."""
    found = (one for one in NETWORKS if (one.name, one.size) == (name, size))
    return next(found, None)
