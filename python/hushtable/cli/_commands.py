"""The commands: where each is, and its line in the help. Nothing of them is imported here."""

from __future__ import annotations

import importlib
import importlib.util

from . import _help

__all__ = [
    "COMMANDS",
    "OF_LAB",
    "Entry",
    "entry",
    "has_lab",
    "line",
    "names",
    "package",
    "page",
    "version",
]

#: The module and the function in it, nothing of a group of commands; and the line in the help.
Entry = tuple[str, str]

#: Every command of this package by its path, in the order of the help: one entry adds a command.
#: A line is the first paragraph of the function's docstring; a test holds it.
COMMANDS: dict[str, Entry] = {
    "serve": (
        ".serve:serve",
        "Serve a bundle as the left, the right or a single server, until SIGTERM or Ctrl-C.",
    ),
    "lookup": (
        ".lookup:lookup",
        "Fetch rows from two servers, or from one, so that none learns which.",
    ),
    "gateway": (
        ".gateway:gateway",
        "Answer lookups over HTTP and JSON, for programs beside it that have no client of ours.",
    ),
    "tune": (
        ".tune:tune",
        "Choose how a table is served to inferences that read many rows at once.",
    ),
    "certificates": (
        ".certificates:certificates",
        "Make a local authority, a server's certificate and a client's, valid for a year.",
    ),
    "doctor": (
        ".doctor:doctor",
        "Print processor, memory bandwidth, versions, and what would be used.",
    ),
    "demo": (
        ".demo:demo",
        "Look words up from two servers on this machine, so that neither learns which.",
    ),
    "table": ("", "Build, describe and check table bundles."),
    "table build": (
        ".table:build",
        "Build a bundle from a file; an old bundle stands until the new one is whole.",
    ),
    "table info": (
        ".table:info",
        "Print a bundle's name, shape and version, and its layout's costs if it has one.",
    ),
    "table verify": (
        ".table:verify",
        "Read every byte of a bundle, and of its prepared files; exits with 1 if one is not as "
        "it was built.",
    ),
    "table prepare": (
        ".table:prepare",
        "Make the file that a single server answers from: three to four times the table's bytes.",
    ),
    "table patch": (
        ".table_patch:patch",
        "Change rows of a bundle, in time proportional to the change.",
    ),
    "table compact": (
        ".table_patch:compact",
        "Write a patched bundle whole: of the same version, with no changes beside its rows.",
    ),
    "table push": (
        ".push:push",
        "Bring the next version to running servers, one after the other.",
    ),
    "model": (
        "",
        "Build, describe and check models: many tables, their features, and the dense rest.",
    ),
    "model build": (
        ".model:build",
        "Build a model bundle from a checkpoint; an old bundle stands until the new one is whole.",
    ),
    "model info": (".model:info", "Print a model's name and version, its features and its tables."),
    "model verify": (
        ".model:verify",
        "Read every byte of a model; exits with 1 if one is not as it was built, and names what "
        "is damaged.",
    ),
    "model prepare": (
        ".model:prepare",
        "Make the files that a single server answers a model's tables from.",
    ),
    "model push": (
        ".push:push",
        "Bring the next version to running servers, one after the other.",
    ),
    "shard": (
        "",
        "Cut a model into shards, each on servers of its own, and fetch what they need of it.",
    ),
    "shard plan": (
        ".shard:plan",
        "Cut a model's tables into shards of equal size, and write the map into its bundle.",
    ),
    "shard show": (".shard:show", "Print which rows of which tables lie on which shard."),
    "shard fetch": (
        ".shard:fetch",
        "Copy what a shard, or a front, needs of a model, and check every byte of it.",
    ),
    "cluster": ("", "One side's servers on a running Ray cluster: shards, replicas and fronts."),
    "cluster up": (
        ".cluster:up",
        "Bring a cluster to what the file says, and wait until it is ready.",
    ),
    "cluster status": (
        ".cluster:status",
        "Say how each server is, and how far the newest version.",
    ),
    "cluster down": (
        ".cluster:down",
        "Take a cluster down: fronts end what is under way, then shards; copies stay on disks.",
    ),
    "train": ("", "Train a table by federated rounds, behind an oblivious memory on disk."),
    "train create": (
        ".train:create",
        "Make a controller in a new FOLDER, from a bundle or from new rows.",
    ),
    "train expect": (
        ".train:expect",
        "Tell what rounds would read and lose, before a controller is made for good.",
    ),
    "train info": (
        ".train:info",
        "Open a controller, ending what a crash cut short, and print what it is.",
    ),
    "train key": (
        ".train:key",
        "Make the key of a user, or of the authority that enrolls users, and print its public "
        "half.",
    ),
    "train enroll": (
        ".train:enroll",
        "Enroll users with a controller: print a ticket for each public key.",
    ),
    "train audit": (
        ".train:audit",
        "Check the audit log of `hushtable train serve --audit-log`, and print what it holds.",
    ),
    "train export": (
        ".train:export",
        "Write the trained table as a bundle, or into a model; `hushtable serve` serves both.",
    ),
    "train serve": (
        ".train:serve",
        "Serve the rounds of the controller in FOLDER, until SIGTERM or Ctrl-C.",
    ),
    "train backup": (
        ".train_recover:backup",
        "Back a controller up, at rest or while it is served, or check a backup.",
    ),
    "train restore": (
        ".train_recover:restore",
        "Make a controller in a new FOLDER of a backup. It says what that costs, and asks.",
    ),
    "train recover": (
        ".train_recover:recover",
        "Say what is the matter with a controller that does not open, and go on.",
    ),
    "train model": ("", "Train all tables of a model, each behind an oblivious memory of its own."),
    "train model create": (
        "..scale.commands:create",
        "Make a controller for each table of MODEL, in a new FOLDER.",
    ),
    "train model info": (
        "..scale.commands:info",
        "Open all controllers, ending what a crash cut short, and print what they are and have "
        "cost.",
    ),
    "train model export": (
        "..scale.commands:export",
        "Write the trained tables into a model, all in one step; `hushtable serve` serves it.",
    ),
    "infer": ("", "Compute a model that stays at its server on inputs that do not reach it."),
    "infer compile": (
        ".infer:compile_",
        "Compile a model bundle into a plan, and write it into the bundle.",
    ),
    "infer plan": (
        ".infer:plan",
        "Print how a model is computed on encrypted features, and what that costs.",
    ),
    "infer serve": (
        ".infer:serve",
        "Serve a compiled model, on encrypted features, on shares or by hybrid inference.",
    ),
    "infer query": (
        ".infer:query",
        "Have a model computed: on encrypted features, by hybrid inference, or on two servers' "
        "shares.",
    ),
    "infer precompute": (
        ".infer_hybrid:precompute",
        "Make precomputes for hybrid inference ahead of time: each is used up by one prediction.",
    ),
    "infer check": (
        ".infer_check:check",
        "Say what would be taken of a network, what is refused of it, and what it would cost.",
    ),
    "infer import": (
        ".infer_import:import_",
        "Make a model bundle of a network of convolutions, for hybrid private inference.",
    ),
    "infer trace": (
        ".infer_project:trace",
        "List every homomorphic operation of a model's plan, with its level.",
    ),
    "infer project": (
        ".infer_project:project",
        "Say what a circuit would take on other machines, from tables of their operations.",
    ),
}

#: The package that adds groups of commands where it is installed, and these groups.
LAB, OF_LAB = "hushtable_lab", ("bench", "sim")

_ROOT = "Private embedding tables: look rows up without the servers learning which."
#: Options of the root, as its help has them. Nothing that makes options is imported for it.
_ROOT_OPTIONS = (
    ("--version", "Print the version and exit."),
    ("--install-completion", "Install completion for the current shell."),
    (
        "--show-completion",
        "Show completion for the current shell, to copy it or customize the installation.",
    ),
)
HELP_OPTION = ("-h, --help", "Show this message and exit.")


def has_lab() -> bool:
    """Whether the package with ``bench`` and ``sim`` is installed."""
    return importlib.util.find_spec(LAB) is not None


def version() -> str:
    """What ``--version`` prints."""
    from .. import __version__

    return f"hushtable {__version__}"


def _all() -> dict[str, Entry]:
    if not has_lab():
        return COMMANDS
    of_lab: dict[str, Entry] = importlib.import_module(f"{LAB}.cli").COMMANDS
    return COMMANDS | of_lab


def names(group: str) -> list[str]:
    """Commands and groups of a group, by their last word; those of the root where it is empty."""
    start = f"{group} " if group else ""
    below = [path.removeprefix(start) for path in _all() if path.startswith(start)]
    return [name for name in below if " " not in name]


def entry(path: str) -> Entry | None:
    """Where a command is, and its line; None where there is none of that path."""
    return _all().get(path)


def package(path: str) -> str:
    """The package that the modules of entries are relative to."""
    return f"{LAB}.cli" if path.split(" ")[0] in OF_LAB else __package__ or ""


def line(path: str) -> str:
    """What the help says of a command or a group in one line."""
    found = entry(path)
    return _ROOT if found is None else found[1]


def page(path: str) -> str | None:
    """The help of a group of commands, or of the root, where the path is empty; None of others."""
    found = entry(path)
    if path and (found is None or found[0]):
        return None
    usage = _help.usage(f"hushtable {path}".strip(), ("[OPTIONS]", "COMMAND", "[ARGS]..."))
    own = () if path else _ROOT_OPTIONS
    below = [(name, line(f"{path} {name}".strip())) for name in names(path)]
    return _help.page(usage, line(path), [("Options", [*own, HELP_OPTION]), ("Commands", below)])
