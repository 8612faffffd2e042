"""What Garimella et al. measured of hybrid private inference with DELPHI.

The constants themselves are the simulator's profile ``paper``.
"""

from __future__ import annotations

from dataclasses import dataclass

from .sim.inference.network import Network, read_constants

__all__ = ["NETWORKS", "PaperNetwork", "network"]

_CONSTANTS = read_constants()
#: Threads of the server's garbling in Table 1, and of the client.
SERVER_THREADS = 32
CLIENT_THREADS = 4


@dataclass(frozen=True, slots=True)
class PaperNetwork:
    """One network on images of one size.

    Attributes:
        of: its constants.
    """

    of: Network

    @property
    def name(self) -> str:
        """As `hushtable bench hybrid` has it."""
        return self.of.name

    @property
    def size(self) -> int:
        """Rows and columns of an image."""
        return self.of.size

    @property
    def title(self) -> str:
        """For people, as in the paper."""
        return self.of.title

    @property
    def relus(self) -> int:
        """Numbers that go through ReLUs."""
        return self.of.relus

    @property
    def he_seconds(self) -> tuple[float, float]:
        """Of all linear layers on the server, on one thread and on one a layer."""
        return self.of.he_seconds[0], self.of.he_seconds[-1]

    def client_bytes(self, *, client_garbles: bool) -> int:
        """What a client keeps of a precompute's circuits (Figures 3 and 8)."""
        relu = _CONSTANTS.relu
        return round(self.relus * (relu.garbler_bytes if client_garbles else relu.evaluator_bytes))

    def traffic(self, *, client_garbles: bool) -> tuple[int, int]:
        """Bytes to the server and back, offline and online."""
        relu = _CONSTANTS.relu
        up = _CONSTANTS.protocol.key_bytes + self.of.he_up_bytes
        down = self.of.he_down_bytes
        circuits, labels, asked, answered = (
            round(self.relus * each)
            for each in (
                relu.circuit_bytes,
                relu.label_bytes,
                relu.transfer_request_bytes,
                relu.transfer_answer_bytes,
            )
        )
        if client_garbles:
            # Extended transfers are online, the other way around.
            return up + circuits + answered, down + asked
        return up + asked + self.of.online_up_bytes, down + circuits + answered + labels

    def circuit_seconds(self, what: str, party: str, threads: int) -> float:
        """Garbling ("garble") or evaluating ("evaluate") all ReLUs."""
        line = _CONSTANTS.circuits[what, "client" if party == "client" else "server"]
        return line.seconds(self.relus, threads)

    def seconds(self, *, client_garbles: bool) -> tuple[float, float]:
        """Computing, offline and online: HE on one thread, the paper's threads for circuits."""
        one = self.of
        he = _CONSTANTS.protocol.keygen_seconds + one.he_seconds[0]
        he += one.encrypt_seconds + one.decrypt_seconds
        if client_garbles:
            garble = self.circuit_seconds("garble", "client", CLIENT_THREADS)
            evaluate = self.circuit_seconds("evaluate", "server", SERVER_THREADS)
        else:
            garble = self.circuit_seconds("garble", "server", SERVER_THREADS)
            evaluate = self.circuit_seconds("evaluate", "client", CLIENT_THREADS)
        online = evaluate + one.encode_online_seconds + one.shares_seconds
        return he + garble + one.encode_offline_seconds, online


NETWORKS: tuple[PaperNetwork, ...] = tuple(PaperNetwork(one) for one in _CONSTANTS.networks)


def network(name: str, size: int) -> PaperNetwork | None:
    """What the paper measured of a network; None where it did not."""
    found = (one for one in NETWORKS if (one.name, one.size) == (name, size))
    return next(found, None)
