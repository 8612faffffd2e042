"""The comparison of layouts, on a small application and two real servers."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jax", reason="the applications need hushtable[examples]")

from examples.clicks.app import App
from examples.codesign import compare
from examples.codesign.compare import Comparison, batch_ms, ratios
from examples.codesign.served import serve


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    with pytest.MonkeyPatch.context() as patch:
        # Neither the models' cache nor this machine's cost model is touched.
        patch.setenv("HUSHTABLE_DATA", str(tmp_path_factory.mktemp("data")))
        return Comparison(App.small(), evaluations=40)


def test_what_is_chosen_keeps_quality_within_the_limits(comparison: Comparison) -> None:
    assert compare.PLAIN in comparison.families()
    assert len(comparison.families()) > 3
    for family in comparison.families():
        for point in comparison.best(batch_ms, [family], count=2):
            assert point.family == family
            assert point.comm_kb <= compare.COMM_KB_MAX
            assert comparison.is_kept(comparison.quality(point))
    cheapest = comparison.best(batch_ms, comparison.families(), count=3)
    assert [point.batch_ms for point in cheapest] == sorted(p.batch_ms for p in cheapest)


def test_ratios_compare_the_best_of_both_kinds(comparison: Comparison) -> None:
    for ratio in ratios(comparison):
        assert ratio.plain is None or ratio.plain.point.family == compare.PLAIN
        assert ratio.designed is not None
        assert ratio.designed.point.family != compare.PLAIN
        if ratio.plain is not None:
            assert ratio.ratio == ratio.cost(ratio.plain.point) / ratio.cost(ratio.designed.point)


def test_servers_give_what_the_simulation_promises(comparison: Comparison) -> None:
    point = comparison.best(batch_ms, comparison.families())[0]
    layout = comparison.result.layout(point)
    served = serve(comparison.app, comparison.table, layout, seconds=1.0, clients=4)
    app = comparison.app
    assert served.checked == len(app.test.offsets) - 1
    # The model's figure over fetched rows is that of the simulated drops, to the last bit.
    expected = app.quality("test", compare.simulate(layout, app.test))
    assert served.quality == expected
    assert served.inferences_per_s > 0
    assert served.sent_bytes + served.received_bytes <= point.costs["comm_bytes"]


def test_a_drop_at_random_hurts_no_less_than_none(comparison: Comparison) -> None:
    app = comparison.app
    kept = np.zeros(len(app.test.ids), dtype=bool)
    assert app.quality("test", kept) < app.quality("test")
