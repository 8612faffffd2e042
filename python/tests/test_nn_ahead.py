"""That looking ahead in a privatised model's forward leaves no trace in the model or its inputs."""

from __future__ import annotations

import collections
import copy
import gc
import queue
import random
import weakref
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra hushtable[torch] is not installed")

from test_nn_trips import ROWS, Net, Source, inputs, together  # noqa: E402

import hushtable  # noqa: E402
from hushtable.nn import privatize  # noqa: E402


class Middle(Net):
    """Ids of two layers come from rows of two others by way of ``middle``."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.linear = torch.nn.Linear(4, 4)
        self.drop = torch.nn.Dropout(0.0)
        self.norm = torch.nn.BatchNorm1d(4)
        self.instance = torch.nn.InstanceNorm1d(1, track_running_stats=True)

    def middle(self, rows: Any) -> Any:
        return self.drop(self.linear(rows))

    def forward(self, ids: Any) -> Any:
        rows = self.bags[0](ids[0]) + self.bags[1](ids[1])
        chosen = (self.middle(rows).abs().sum(1, keepdim=True) * 100).long() % ROWS
        return torch.cat([rows, self.bags[2](chosen), self.bags[3](chosen)], 1)


def pair(made: Any, training: bool = False) -> tuple[Any, Any, Source, Any]:
    clear, source = made().train(training), Source()
    net = copy.deepcopy(clear)
    return clear, net, source, privatize(net, source, compare=False)


def check_same(clear: Any, net: Any, given: Any) -> None:
    """The same results, and random numbers after them."""
    found = []
    for model in (clear, net):
        torch.manual_seed(3)
        found.append((model(given), torch.rand(1)))
    assert all(map(torch.equal, *found))


def test_hooks_run_once() -> None:
    clear, net, source, _ = pair(Middle)
    calls: list[Any] = []

    def hook(module: Any, *given: Any) -> None:
        calls.append(type(module).__name__)

    for module in (net.bags[0], net.linear, net.drop):
        module.register_forward_hook(hook)
        module.register_forward_pre_hook(hook)
    assert torch.equal(net(inputs()), clear(inputs()))
    assert sorted(calls) == ["Dropout"] * 2 + ["Linear"] * 2 + ["PrivateEmbeddingBag"] * 2
    assert source.counts() == (2, 0)
    everywhere = torch.nn.modules.module.register_module_forward_hook(hook)
    calls.clear()
    net(inputs())
    everywhere.remove()
    assert calls.count("Linear") == 3
    assert calls.count("PrivateEmbeddingBag") == 4 + 2


class Encoded(Middle):
    def __init__(self) -> None:
        super().__init__()
        self.block = torch.nn.TransformerEncoderLayer(4, 1, 8)

    def middle(self, rows: Any) -> Any:
        return self.block(rows)


def test_hooks_inside_of_torchs_own_modules_run_once() -> None:
    _, net, _, report = pair(Encoded)
    calls: list[int] = []
    net.block.linear1.register_forward_pre_hook(lambda *_: calls.append(1))
    net(inputs())
    assert calls == [1]
    assert {one.why for one in report.given_up} == {"its ids come from block, which has hooks"}


@pytest.mark.parametrize("ahead", [True, False])
def test_a_module_that_was_put_in_torchs_place_runs_once(ahead: bool) -> None:
    calls: list[int] = []

    class Own(torch.nn.Module):
        def forward(self, rows: Any) -> Any:
            calls.append(1)
            return rows

    clear, net, _, _ = pair(Middle)
    if ahead:
        net(inputs())
    clear.linear = Own()
    expected = clear(inputs())
    net.linear = Own()
    calls.clear()
    assert torch.equal(net(inputs()), expected)
    assert calls == [1]
    net.linear = torch.nn.Identity()
    net.linear.forward = clear.linear.forward
    calls.clear()
    assert torch.equal(net(inputs()), expected)
    assert calls == [1]


def test_a_dropout_that_begins_later_draws_its_numbers_once() -> None:
    clear, net, source, _ = pair(Middle, training=True)
    check_same(clear, net, inputs())
    assert source.counts() == (2, 0)
    for model in (clear, net):
        model.drop.p = 0.5
    check_same(clear, net, inputs())
    assert source.counts() == (1, 2)


def test_a_dropout_that_had_no_elements_at_first_draws_its_numbers_once() -> None:
    class Dropping(Net):
        def forward(self, ids: Any) -> Any:
            kept = torch.nn.functional.dropout(ids.float(), 0.5, training=True)
            return together(self, kept.long() % ROWS)

    clear, net, _, _ = pair(Dropping)
    for given in (inputs()[:, :0], inputs()):
        check_same(clear, net, given)


class Functional(Middle):
    def middle(self, rows: Any) -> Any:
        norm = self.norm
        return torch.nn.functional.batch_norm(
            rows, norm.running_mean, norm.running_var, training=True
        )


class Uncounted(Middle):
    def __init__(self) -> None:
        super().__init__()
        self.norm.num_batches_tracked = None

    def middle(self, rows: Any) -> Any:
        return self.norm(rows)


class ByInstance(Middle):
    def middle(self, rows: Any) -> Any:
        return self.instance(rows.unsqueeze(1)).squeeze(1)


@pytest.mark.parametrize("made", [Functional, Uncounted, ByInstance])
@pytest.mark.parametrize("inference", [False, True])
def test_running_statistics_are_brought_on_once(made: Any, inference: bool) -> None:
    clear, net, source, _ = pair(made, training=True)
    with torch.inference_mode(inference):
        for seed in range(2):
            assert torch.equal(net(inputs(seed, 5, 3)), clear(inputs(seed, 5, 3)))
            assert source.counts() == (1, 2)
    for own, found in zip(clear.buffers(), net.buffers(), strict=True):
        assert torch.equal(own, found)


def test_a_dropout_that_is_off_is_no_obstacle() -> None:
    clear, net, source, _ = pair(Middle)
    for inference in (False, True):
        with torch.inference_mode(inference):
            check_same(clear, net, inputs())
        assert source.counts() == (2, 0)


def test_what_a_queue_gives_is_taken_once() -> None:
    class Taking(Net):
        def forward(self, given: Any) -> Any:
            return together(self, given.get())

    _, net, _, _ = pair(Taking)
    given: Any = queue.Queue()
    given.put(inputs())
    given.put(inputs(1))
    assert torch.equal(net(given), together(Net(), inputs()))
    assert given.qsize() == 1


class Meter:
    def __init__(self) -> None:
        self.total: Any = 0
        self.seen: list[Any] = []

    def update(self, value: Any) -> None:
        self.total = self.total + value
        self.seen.append(value)


class Noting(Net):
    """Code that writes into all kinds of things that a model holds."""

    def __init__(self) -> None:
        super().__init__()
        self.meter = Meter()
        self.by_name = {"ids": [], "meter": self.meter}
        self.recent: Any = collections.deque(maxlen=3)
        self.counts: Any = collections.Counter(shift=3)
        self.lists: Any = collections.defaultdict(list)
        self.in_pair = ([], {})
        self.array = np.zeros(2)
        self.numpy, self.python = np.random.default_rng(3), random.Random(3)
        self.part = torch.nn.Module()
        self.parts = [self.part]
        self.note = self.noted

    def noted(self, ids: Any) -> None:
        self.last = ids

    def forward(self, ids: Any) -> Any:
        self.note(ids)
        self.parts[0].last = ids
        self.meter.update(ids.sum())
        self.by_name["ids"].append(ids)
        self.recent.append(ids)
        self.counts["calls"] += 1
        self.lists["ids"].append(ids)
        self.in_pair[0].append(ids)
        self.in_pair[1]["ids"] = ids
        self.array[0] += 1
        self.numpy.random()
        self.python.random()
        return together(self, (ids + self.counts["shift"]) % ROWS)


def test_following_the_code_writes_into_nothing_that_the_model_holds() -> None:
    clear, net, source, report = pair(Noting)
    assert report.gathered.stopped is None
    assert (net.meter.total, net.meter.seen, net.array[0]) == (0, [], 0)
    assert not (net.by_name["ids"] or net.recent or net.counts["calls"] or net.lists)
    assert net.in_pair == ([], {})
    assert not hasattr(net.part, "last")
    assert not hasattr(net, "last")
    assert net.numpy.random() == clear.numpy.random()
    assert net.python.random() == clear.python.random()
    assert torch.equal(net(inputs()), clear(inputs()))
    assert source.counts() == (1, 0)
    assert net.meter is net.by_name["meter"]
    assert (net.meter.total, net.array[0], net.counts["calls"]) == (inputs().sum(), 1, 1)


def test_following_code_that_seeds_torch_leaves_its_generator_alone() -> None:
    class Seeding(Net):
        def forward(self, ids: Any) -> Any:
            torch.manual_seed(7)
            return together(self, ids)

    torch.manual_seed(1)
    before = torch.get_rng_state()
    net = Seeding()
    assert privatize(net, Source(), compare=False).gathered.stopped is None
    assert torch.equal(torch.get_rng_state(), before)


class Skipping(Net):
    skips = False

    def forward(self, ids: Any) -> Any:
        first = self.bags[0]((ids[0] + self.shift) % ROWS)
        if self.skips:
            return first
        return torch.cat([first, *(self.bags[place](ids[place]) for place in range(1, 6))])


@pytest.mark.parametrize(("skips", "shift"), [(False, 0), (True, 0), (True, 1), (False, 1)])
def test_a_forwards_inputs_and_rows_are_let_go_at_its_end(skips: bool, shift: int) -> None:
    _, net, _, _ = pair(Skipping)
    net.skips, net.shift = skips, shift
    ids = inputs()
    held = weakref.ref(ids)
    gc.collect()
    gc.disable()
    try:
        net(ids)
        del ids
        assert held() is None
    finally:
        gc.enable()


def test_texts_that_are_others_each_time_are_no_end_of_gathering() -> None:
    class Named(Net):
        def forward(self, ids: Any, request: str) -> Any:
            self.request = request
            return together(self, ids)

    clear, net, source, _ = pair(Named)
    for place in range(40):
        name = f"request {place}"
        assert torch.equal(net(inputs(place), name), clear(inputs(place), name))
        assert source.counts() == (1, 0)


def test_an_error_that_the_code_takes_is_found_out_once() -> None:
    class Mapping(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("places", torch.arange(20))

        def forward(self, ids: Any) -> Any:
            try:
                chosen = self.places[ids[2]]
            except IndexError:
                chosen = ids[2] * 0
            return torch.cat([self.bags[0](ids[0]), self.bags[1](ids[1]), self.bags[2](chosen)])

    clear, net, source, report = pair(Mapping)
    low = inputs() % 20
    assert torch.equal(net(low), clear(low))
    assert source.counts() == (1, 0)
    # How many round trips there are would say whether an id is below 20.
    for ids in (low + 20, low, low + 20):
        assert torch.equal(net(ids), clear(ids))
        assert source.counts() == (1, 1)
    assert [one.path for one in report.given_up] == ["bags.2"]


def test_a_server_that_fails_at_a_step_gives_nothing_up() -> None:
    _, net, source, report = pair(Middle)
    net(inputs())
    answer, source.lookup_many = source.lookup_many, _busy
    with pytest.raises(hushtable.ServerBusy):
        net(inputs())
    source.lookup_many = answer
    source.counts()
    net(inputs())
    assert source.counts() == (2, 0)
    assert report.given_up == ()


def _busy(inferences: Any) -> Any:
    raise hushtable.ServerBusy("busy")
