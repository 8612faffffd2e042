"""``hushtable bench layout``: what layouts cost on this machine, for ``hushtable tune``."""

from __future__ import annotations

from typing import Annotated

import typer

from hushtable.cli.output import Json, command, note, print_facts, print_json, progress_bar


@command("hushtable bench layout", "hushtable bench layout --json")
def layout(
    seconds: Annotated[float, typer.Option(help="How long each measurement takes.")] = 0.05,
    rounds_max: Annotated[
        int, typer.Option(help="Measurements of a layout at most; fewer where they agree.")
    ] = 16,
    json: Json = False,
) -> None:
    """Measure layouts on one thread, fit the model of their time, and keep it for `tune`.

    Keeps one model for each processor, instruction set and version of this package. The figures are
    this machine's at rest only if nothing else runs on it meanwhile.
    """
    # Numbers and fitting: more than other commands need.
    from hushtable.tune.costs import BATCH, save_costs
    from hushtable.tune.measure import calibrate, measure_wire

    with progress_bar("measuring", shown=not json) as progress:
        model, samples = calibrate(seconds=seconds, rounds_max=rounds_max, progress=progress)
    note("measuring two servers' messages")
    model = measure_wire(model, seconds=20 * seconds)
    path = save_costs(model)
    document = {
        "bench": "layout",
        "params": {"batch": BATCH, "layouts": len(samples), "rounds_max": rounds_max},
        "value": model.error_median,
        "unit": "relative error",
        "floor": None,
        "of_floor": None,
        "threads": 1,
        "isa": model.isa,
        "detail": {
            "model": model.to_dict(),
            "kept_in": str(path),
            "samples": [
                {
                    "rows": sample.rows,
                    "row_bytes": sample.row_bytes,
                    "layout": sample.spec.describe(),
                    "alone_ms": sample.alone_seconds * 1e3,
                    "alone_ms_fitted": model.alone_seconds(sample.costs, sample.spec) * 1e3,
                    "batch_ms": sample.batch_seconds * 1e3,
                    "batch_ms_fitted": model.batch_seconds(sample.costs, sample.spec) * 1e3,
                }
                for sample in samples
            ],
        },
    }
    if json:
        print_json(document)
        return
    constants = model.to_dict()
    print_facts(
        {
            "measured": f"{len(samples)} layouts on one thread, {model.isa}",
            "fits within": f"{model.error_median:.1%} (median), {model.error_max:.1%} (largest)",
            **{f"alone: {name}": _each(value) for name, value in constants["alone"].items()},
            **{f"batch: {name}": _each(value) for name, value in constants["batch"].items()},
            **{f"server: {name}": _each(value) for name, value in constants["wire"].items()},
            "kept in": path,
        }
    )


def _each(seconds: float) -> str:
    return f"{seconds * 1e9:,.4g} ns each"
