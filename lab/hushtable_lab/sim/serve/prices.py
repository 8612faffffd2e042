"""What machines of a cloud have and cost, from a file with its date."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

from hushtable.errors import ConfigError

from .document import read_toml

__all__ = ["HOURS_A_MONTH", "LISTED", "Instance", "Prices", "Provider", "read_prices"]

#: List prices that come with the package.
LISTED = Path(__file__).parent / "prices.toml"
#: As clouds count: a year of 8,760 hours in twelve.
HOURS_A_MONTH = 730.0


@dataclass(frozen=True, slots=True)
class Instance:
    """A kind of machine.

    Attributes:
        name: as its provider calls it; with the provider's name unique in a file.
        provider: of `Provider`.
        region: where the price holds.
        vcpus: as it is sold.
        cores: that work at once: two hyperthreads are one.
        memory_gib: of it.
        link_gbit_per_s: that it may use for as long as it likes, each way.
        dollars_per_hour: on demand, with Linux.
    """

    name: str
    provider: str
    region: str
    vcpus: int
    cores: int
    memory_gib: float
    link_gbit_per_s: float
    dollars_per_hour: float

    @property
    def dollars_per_month(self) -> float:
        """Of an instance that is never off."""
        return self.dollars_per_hour * HOURS_A_MONTH


@dataclass(frozen=True, slots=True)
class Provider:
    """What bytes cost.

    Attributes:
        name: of it.
        internet_dollars_per_gb: of 10^9 bytes that leave to clients, at its first paid tier.
        zone_dollars_per_gb: of 10^9 bytes from one zone of a region to another, both ends' charges.
    """

    name: str
    internet_dollars_per_gb: float
    zone_dollars_per_gb: float


@dataclass(frozen=True, slots=True)
class Prices:
    """A price list.

    Attributes:
        path: the file.
        date: when its prices held.
        note: what to know about them.
    """

    path: Path
    date: datetime.date
    note: str
    providers: dict[str, Provider]
    instances: tuple[Instance, ...]

    def of(self, provider: str | None) -> tuple[Instance, ...]:
        """Instances of a provider; of all without one.

        Raises:
            ConfigError: no such provider.
        """
        if provider is None:
            return self.instances
        if provider not in self.providers:
            known = ", ".join(self.providers)
            raise ConfigError(f"provider is {provider!r}, but {self.path.name} has {known}")
        return tuple(one for one in self.instances if one.provider == provider)

    def instance(self, name: str) -> Instance:
        """The one of this name.

        Raises:
            ConfigError: no such instance.
        """
        for one in self.instances:
            if one.name == name:
                return one
        known = ", ".join(one.name for one in self.instances)
        raise ConfigError(
            f"instance is {name!r}, but {self.path.name} has {known}: add it to a file of your "
            "own, and give that with --prices"
        )


def read_prices(path: Path = LISTED) -> Prices:
    """A price list.

    Raises:
        ConfigError: no such file, or a value that is missing, wrong or of an unknown name.
    """
    document = read_toml(path)
    document.known("format", "date", "note", "provider", "instance")
    date = document.found.get("date")
    if not isinstance(date, datetime.date):
        raise document.wrong("date", "a date, as 2026-11-25")
    providers = {}
    for one in document.tables("provider"):
        one.known("name", "internet_dollars_per_gb", "zone_dollars_per_gb")
        name = one.text("name")
        providers[name] = Provider(
            name, one.number("internet_dollars_per_gb"), one.number("zone_dollars_per_gb")
        )
    instances: dict[str, Instance] = {}
    for one in document.tables("instance"):
        one.known("name", "provider", "region", "vcpus", "cores", "memory_gib", "link_gbit_per_s",
                  "dollars_per_hour")  # fmt: skip
        found = Instance(
            one.text("name"),
            one.text("provider"),
            one.text("region"),
            one.count("vcpus"),
            one.count("cores"),
            one.number("memory_gib", above=0),
            one.number("link_gbit_per_s", above=0),
            one.number("dollars_per_hour"),
        )
        if found.provider not in providers:
            raise one.wrong("provider", f"a [[provider]] of the file: {', '.join(providers)}")
        if found.name in instances:
            raise one.wrong("name", "of one instance alone")
        instances[found.name] = found
    return Prices(path, date, document.text("note"), providers, tuple(instances.values()))
