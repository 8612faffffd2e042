"""How many round trips a forward of a privatised model takes, and that it computes the same."""

from __future__ import annotations

import copy
import io
import random
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushtable
from hushtable.nn import ClearModel, PrivateEmbeddingBagCollection, privatize

torch = pytest.importorskip("torch", reason="the extra hushtable[torch] is not installed")
pytestmark = [
    # What torch's own compilers and tracer say of themselves.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*"),
    pytest.mark.filterwarnings("ignore::FutureWarning:torch.*"),
]

ROWS, DIM, TABLES, MAX_IDS = 40, 4, 6, 4
NAMES = [f"bags.{place}" for place in range(TABLES)]
WEIGHTS = np.random.default_rng(7).normal(size=(TABLES, ROWS, DIM)).astype(np.float32)


class Feature:
    pooling, max_ids = "sum", MAX_IDS

    def __init__(self, name: str) -> None:
        self.name = self.table = name


class Source(ClearModel):
    """A model in the clear that notes each trip, and each lookup of one table."""

    def __init__(self, names: Sequence[str] = NAMES) -> None:
        self.trips: list[list[Mapping[str, Any]]] = []
        self.alone: list[str] = []
        tables = {}
        for place, name in enumerate(names):
            table: Any = Noted(WEIGHTS[place % TABLES], name, self.alone)
            tables[name] = table
        super().__init__([Feature(name) for name in names], tables)

    def lookup_many(self, inferences: Sequence[Mapping[str, Any]]) -> list[dict[str, np.ndarray]]:
        self.trips.append(list(inferences))
        for inference in inferences:
            assert all(len(ids) <= MAX_IDS for ids in inference.values())
        return [
            {name: self[name].table.rows(ids) for name, ids in inference.items()}  # type: ignore[attr-defined]
            for inference in inferences
        ]

    def counts(self) -> tuple[int, int]:
        """Trips for several layers, and lookups of one, since the last call."""
        found = len(self.trips), len(self.alone)
        self.trips.clear()
        self.alone.clear()
        return found


class Noted:
    def __init__(self, weight: np.ndarray, name: str, seen: list[str]) -> None:
        self.table = hushtable.Table.from_weight(weight, name=name)
        self.info, self.seen = self.table.info, seen

    def lookup(self, ids: Any, max_ids: int | None = None) -> np.ndarray:
        self.seen.append(self.info.name)
        return self.table.rows(ids)


def together(net: Any, ids: Any) -> Any:
    return torch.cat([bag(ids[place]) for place, bag in enumerate(net.bags)], dim=1)


class Net(torch.nn.Module):
    """Some layers."""

    forward = together
    shift = 0

    def __init__(self, kind: Any = torch.nn.EmbeddingBag) -> None:
        super().__init__()
        options = {"mode": "sum"} if kind is torch.nn.EmbeddingBag else {}
        self.bags = torch.nn.ModuleList(
            kind.from_pretrained(torch.tensor(weight), **options) for weight in WEIGHTS
        )


def inputs(seed: int = 0, *shape: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(ROWS, (TABLES, *(shape or (1, 3))), generator=generator)


def both(code: Any = None, kind: Any = torch.nn.EmbeddingBag) -> tuple[Any, Any, Source, Any]:
    """The model in the clear, the same one privatised, its source, and the report."""
    made = Net if code is None else type("Net", (Net,), {"forward": code})
    clear = made(kind)
    net, source = copy.deepcopy(clear), Source()
    report = privatize(net, source, compare=False)
    assert len(report.replaced) == TABLES
    return clear.eval(), net.eval(), source, report


def test_all_layers_are_one_trip_of_one_request() -> None:
    clear, net, source, report = both()
    assert [len(trip) for trip in report.gathered.trips] == [TABLES]
    assert "a forward: 1 round trip for 6 layers" in str(report)
    for seed in range(3):
        assert torch.equal(net(inputs(seed)), clear(inputs(seed)))
        assert [len(trip) for trip in source.trips] == [1]
        assert source.counts() == (1, 0)
        assert (report.last_stats.trips, report.last_stats.requests) == (1, 1)


def test_what_is_sent_follows_from_shapes_alone() -> None:
    _, net, source, _ = both()
    for ids in (inputs(1, 5, 3), torch.zeros_like(inputs(1, 5, 3)), inputs(2, 5, 3)):
        net(ids)
        # 15 ids of 4 an inference are 4 inferences.
        assert [len(trip) for trip in source.trips] == [4]
        source.counts()


def loop(net: Any, *ids: Any) -> Any:
    return torch.stack([bag(one) for bag, one in zip(net.bags, ids, strict=False)]).sum(0)


def unbound(net: Any, ids: Any) -> Any:
    return torch.stack([bag(one) for one, bag in zip(ids.unbind(0), net.bags, strict=False)]).sum(0)


def published(net: Any, ids: Any, offsets: Any) -> Any:
    """As Facebook's DLRM has it, and something after it."""
    out = []
    for place, one in enumerate(ids):
        bag = net.bags[place]
        out.append(bag(one, offsets[place]))
    return torch.cat([*out, net.bags[0](ids[1], offsets[1])])


def named(net: Any, batch: Any, scale: Any = None) -> Any:
    found = [bag(batch[f"f{place}"]) for place, bag in enumerate(net.bags)]
    return torch.cat(found) if scale is None else torch.cat(found) * scale


def hashed(net: Any, ids: Any) -> Any:
    ids = (ids * 7 + 3) % ROWS
    ids = torch.where(ids > 30, torch.zeros_like(ids), ids).clamp(max=ROWS - 1)
    return together(net, ids)


def offsets(net: Any, ids: Any) -> Any:
    at = torch.arange(0, 4, 2)
    return torch.cat([bag(ids[place].reshape(-1)[:4], at) for place, bag in enumerate(net.bags)])


@pytest.mark.parametrize(
    ("code", "call"),
    [
        (loop, lambda ids: ((*ids,), {})),
        (unbound, lambda ids: ((ids,), {})),
        (published, lambda ids: (([*ids[:, 0]], torch.tensor([[0, 1]] * TABLES)), {})),
        (published, lambda ids: ((ids[:3, 0], torch.tensor([[0, 1]] * 3)), {})),
        (named, lambda ids: (({f"f{place}": one for place, one in enumerate(ids)},), {})),
        (named, lambda ids: (({f"f{place}": one for place, one in enumerate(ids)},), {"scale": 2})),
        (hashed, lambda ids: ((ids,), {})),
        (offsets, lambda ids: ((ids.reshape(TABLES, 1, -1).repeat(1, 1, 2),), {})),
    ],
)
def test_code_of_many_kinds_is_one_trip(code: Any, call: Any) -> None:
    clear, net, source, report = both(code)
    for seed in range(3):
        args, named = call(inputs(seed))
        assert torch.equal(net(*args, **named), clear(*args, **named))
        assert source.counts() == (1, 0)
        # Of what takes *args only a call says how many there are.
        assert report.gathered is None if code is loop else report.gathered.stopped is None


def test_embeddings_and_a_layer_that_is_called_twice() -> None:
    def twice(net: Any, ids: Any) -> Any:
        found = [bag(ids[place]) for place, bag in enumerate(net.bags)]
        return torch.stack([*found, net.bags[0](ids[3]), net.bags[0](ids[0])])

    clear, net, source, report = both(twice, torch.nn.Embedding)
    assert torch.equal(net(inputs()), clear(inputs()))
    # The first layer has three calls of an inference each.
    assert [len(trip) for trip in source.trips] == [3]
    assert source.counts() == (1, 0)
    assert report.gathered.trips[0].count("bags.0") == 3


def steps(net: Any, ids: Any) -> Any:
    """Two towers: each one's second layer is asked for ids that its first layer's rows make."""
    out = []
    for first, second in ((0, 1), (2, 3)):
        rows = net.bags[first](ids[first]).relu()
        chosen = (rows.abs().sum(1, keepdim=True) * 100).long() % ROWS
        out += [rows, net.bags[second](chosen)]
    return torch.cat([*out, net.bags[4](ids[4]).relu_(), net.bags[5](ids[5])], dim=1)


class Steps(Net):
    forward = steps


def test_ids_that_rows_make_are_a_trip_for_each_step() -> None:
    clear, net, source, report = both(steps)
    assert report.gathered.trips == (("bags.0", "bags.2", "bags.4", "bags.5"), ("bags.1", "bags.3"))
    assert "a forward: 2 round trips for 6 layers" in str(report)
    for seed in range(3):
        assert torch.equal(net(inputs(seed)), clear(inputs(seed)))
        assert source.counts() == (2, 0)


def branch(net: Any, ids: Any) -> Any:
    first = net.bags[0](ids[0]) + net.bags[1](ids[1])
    if first.sum() > 0:
        return first + net.bags[2](ids[2])
    return first - net.bags[3](ids[3])


def test_code_that_branches_on_values_is_followed_as_far_as_that() -> None:
    clear, net, source, report = both(branch)
    assert report.gathered.trips == (("bags.0", "bags.1"),)
    assert "not followed past" in str(report)
    for seed in range(6):
        assert torch.equal(net(inputs(seed)), clear(inputs(seed)))
        assert source.counts() == (1, 1)


def changed(net: Any, ids: Any) -> Any:
    ids.add_(1).remainder_(ROWS)
    return together(net, ids)


def drawn(net: Any, ids: Any) -> Any:
    return together(net, (ids + torch.randint_like(ids, 5)) % ROWS)


def popped(net: Any, batch: Any) -> Any:
    return together(net, batch.pop("ids"))


def dropped(net: Any, ids: Any) -> Any:
    kept = torch.nn.functional.dropout(ids.float(), 0.5, training=True)
    return together(net, kept.long() % ROWS)


def endless(net: Any, ids: Any) -> Any:
    return torch.cat([net.bags[place](one) for place, one in enumerate(ids) if place < TABLES])


def untraced(net: Any, ids: Any) -> Any:
    return together(net, torch.from_numpy(ids.numpy() % ROWS))


def into(net: Any, ids: Any) -> Any:
    torch.add(ids, 0, out=ids)
    return together(net, torch.remainder(ids + 1, ROWS, out=ids))


@pytest.mark.parametrize("code", [into, changed, drawn, popped, dropped, untraced, endless])
def test_what_may_not_run_twice_is_not_run_ahead(code: Any) -> None:
    clear, net, source, report = both(code)
    for seed in range(3):
        given = [inputs(seed), inputs(seed)]
        if code is popped:
            given = [{"ids": one} for one in given]
        found = []
        for model, ids in zip((clear, net), given, strict=True):
            torch.manual_seed(seed)
            found.append(model(ids))
        assert torch.equal(*found), code
        assert torch.rand(1) == _after(seed, clear, code)
        if code is not popped:
            assert torch.equal(*given)
        assert source.counts() == (0, TABLES)
    assert report.last_stats.trips == TABLES
    alone = {one.path for one in (*report.gathered.alone, *report.given_up)}
    assert alone == set(NAMES) or report.gathered.stopped
    assert str(report).count("a round trip of its own") == len(alone)


def _after(seed: int, clear: Any, code: Any) -> Any:
    torch.manual_seed(seed)
    clear({"ids": inputs(seed)} if code is popped else inputs(seed))
    return torch.rand(1)


def test_a_part_that_is_put_into_training_is_looked_at_again() -> None:
    class Dropping(Net):
        def __init__(self) -> None:
            super().__init__()
            self.drop = torch.nn.Dropout(0.5)

        def forward(self, ids: Any) -> Any:
            return together(self, self.drop(ids.float()).long() % ROWS)

    clear, source = Dropping().eval(), Source()
    net = copy.deepcopy(clear)
    privatize(net, source, compare=False)
    for training, counts in ((False, (1, 0)), (True, (0, TABLES)), (False, (0, TABLES))):
        for model in (clear, net):
            model.drop.train(training)
        found = []
        for model in (clear, net):
            torch.manual_seed(3)
            found.append((model(inputs()), torch.rand(1)))
        assert all(map(torch.equal, *found))
        assert source.counts() == counts


def test_following_the_code_leaves_the_model_and_generators_alone() -> None:
    class Writing(Net):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []
            self.last: Any = None
            self.register_buffer("calls", torch.zeros(1))
            self.plain = torch.zeros(1)

        def forward(self, ids: Any) -> Any:
            self.seen.append(ids)
            self.last = ids
            self.plain.add_(1)
            random.random()
            np.random.rand()
            torch.rand(1)
            self.calls += 1
            return together(self, ids)

    net, source = Writing(), Source()
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    report = privatize(net, source, compare=False)
    assert (net.seen, net.last, net.plain.item(), net.calls.item()) == ([], None, 0, 0)
    assert random.getstate() == states[0]
    assert np.random.get_state()[1].tolist() == states[1]
    assert torch.equal(torch.get_rng_state(), states[2])
    assert torch.equal(net(inputs()), Net()(inputs()))
    assert (len(net.seen), net.plain.item(), net.calls.item()) == (1, 1, 1)
    assert report.gathered.stopped


def test_ids_that_are_others_than_foreseen_are_looked_up_and_not_foreseen_again() -> None:
    def shifted(net: Any, ids: Any) -> Any:
        return together(net, (ids + net.shift) % ROWS)

    clear, net, source, _ = both(shifted)
    assert torch.equal(net(inputs()), clear(inputs()))
    assert source.counts() == (1, 0)
    clear.shift = net.shift = 3
    for place in range(3):
        assert torch.equal(net(inputs(place)), clear(inputs(place)))
        assert source.counts() == (0, TABLES)


def test_one_layer_whose_ids_are_others_does_not_hold_up_the_rest() -> None:
    def shifted(net: Any, ids: Any) -> Any:
        rest = [bag(ids[place]) for place, bag in enumerate(net.bags) if place != 2]
        return torch.cat([*rest, net.bags[2]((ids[2] + net.shift) % ROWS)])

    clear, net, source, report = both(shifted)
    assert torch.equal(net(inputs()), clear(inputs()))
    assert source.counts() == (1, 0)
    assert report.given_up == ()
    clear.shift = net.shift = 3
    for place in range(3):
        assert torch.equal(net(inputs(place)), clear(inputs(place)))
        assert source.counts() == (1, 1)
    assert [(one.path, one.why) for one in report.given_up] == [
        ("bags.2", "its ids were others than its code said")
    ]


def test_a_branch_that_skips_layers_sends_the_same() -> None:
    def skipping(net: Any, ids: Any, short: bool = False) -> Any:
        return net.bags[0](ids[0]) if short else together(net, ids)

    clear, net, source, _ = both(skipping)
    for short in (True, False, True):
        assert torch.equal(net(inputs(), short=short), clear(inputs(), short=short))
        # One layer alone has nothing to gather with.
        assert source.counts() == ((0, 1) if short else (1, 0))


def test_bad_ids_are_refused_as_by_the_layer() -> None:
    _, net, source, report = both()
    ids = inputs()
    ids[4, 0, 0] = ROWS
    with pytest.raises(hushtable.IdOutOfRange, match=str(ROWS)):
        net(ids)
    source.counts()
    # What was left over of that forward is not used in the next.
    assert torch.equal(net(inputs()), Net()(inputs()))
    assert source.counts() == (1, 0)
    assert report.last_stats.trips == 1


def test_a_forward_that_fails_leaves_nothing_behind() -> None:
    def failing(net: Any, ids: Any, fail: bool = False) -> Any:
        first = net.bags[0](ids[0])
        if fail:
            raise KeyError("stop")
        return torch.cat([first, *(net.bags[place](ids[place]) for place in range(1, TABLES))])

    class Stop(BaseException):
        pass

    def interrupted(net: Any, ids: Any, fail: bool = False) -> Any:
        found = failing(net, ids)
        if fail:
            raise Stop
        return found

    for code, error in ((failing, KeyError), (interrupted, Stop)):
        clear, net, source, _ = both(code)
        for _ in range(2):
            with pytest.raises(error):
                net(inputs(), fail=True)
            source.counts()
            # A layer that is called outside of a forward has the rows of now.
            assert torch.equal(net.bags[1](inputs()[1]), clear.bags[1](inputs()[1]))
            if code is failing:
                assert source.counts() == (0, 1)
            source.counts()
            assert torch.equal(net(inputs(1)), clear(inputs(1)))
            assert source.counts() == (1, 0)


def test_servers_that_fail_are_an_error_of_the_layer() -> None:
    _, net, source, _ = both()
    answer, source.lookup_many = source.lookup_many, _refuse
    with pytest.raises(hushtable.ServerBusy):
        net(inputs())
    source.lookup_many = answer
    assert torch.equal(net(inputs()), Net()(inputs()))
    assert source.counts() == (1, 0)


def _refuse(inferences: Any) -> Any:
    raise hushtable.ServerBusy("busy")


def test_two_threads_have_each_their_own_rows() -> None:
    clear, net, source, report = both(steps)
    wrong: list[int] = []
    barrier = threading.Barrier(4)

    def run(first: int) -> None:
        barrier.wait()
        for seed in range(first, first + 30):
            if not torch.equal(net(inputs(seed)), clear(inputs(seed))):
                wrong.append(seed)
        if report.last_stats.trips != 2:
            wrong.append(-1)

    threads = [threading.Thread(target=run, args=(100 * place,)) for place in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong
    assert source.counts() == (4 * 30 * 2, 0)


def test_copies_gather_too() -> None:
    clear, net, source = Steps(), Steps(), Source()
    privatize(net, source, compare=False)
    file = io.BytesIO()
    torch.save(copy.deepcopy(net), file)
    file.seek(0)
    for other in (copy.deepcopy(net), torch.load(file, weights_only=False)):
        copied = other.bags[0].served_by
        assert copied is not source
        assert torch.equal(other(inputs()), clear(inputs()))
        assert copied.counts() == (2, 0)
    assert source.counts() == (0, 0)


def test_a_model_within_another_and_one_privatised_in_parts() -> None:
    clear, net, source, _ = both()
    outer = torch.nn.Sequential(net, torch.nn.Flatten())
    assert torch.equal(outer(inputs()), clear(inputs()).flatten(1))
    assert source.counts() == (1, 0)
    names = [f"0.{name}" for name in NAMES]
    other = Source(names)
    again = torch.nn.Sequential(Net(), torch.nn.Flatten())
    first = privatize(again[0], source, compare=False)
    again[0].bags[0] = Net().bags[0]
    privatize(again, other, compare=False)
    assert len(first.replaced) == TABLES
    source.counts()
    assert torch.equal(again(inputs()), clear(inputs()).flatten(1))
    # Two clients: one trip to each.
    assert source.counts() == (1, 0)
    assert other.counts() == (1, 0)


def test_training_and_gradients() -> None:
    class Trained(Net):
        def __init__(self) -> None:
            super().__init__(kind=torch.nn.EmbeddingBag)
            torch.manual_seed(3)
            self.top = torch.nn.Linear(TABLES * DIM, 1)
            self.scale = torch.nn.Parameter(torch.ones(3))

        def forward(self, ids: Any) -> Any:
            weights = self.scale.expand(1, 3)
            found = [
                bag(ids[place], per_sample_weights=weights) for place, bag in enumerate(self.bags)
            ]
            return self.top(torch.nn.functional.dropout(torch.cat(found, 1), 0.5, self.training))

    clear = Trained()
    net, source = copy.deepcopy(clear), Source()
    privatize(net, source, compare=False)
    for training in (True, False, True):
        for model in (clear, net):
            model.train(training)
            model.zero_grad()
            torch.manual_seed(5)
            model(inputs()).sum().backward()
        assert source.counts() == (1, 0)
        torch.testing.assert_close(net.top.weight.grad, clear.top.weight.grad)
        torch.testing.assert_close(net.scale.grad, clear.scale.grad)
        assert net.scale.grad.abs().sum() > 0


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_privatised_model_compiles_without_a_break(backend: str) -> None:
    clear, net, source, _ = both(hashed)
    compiled = torch.compile(net, backend=backend, fullgraph=True)
    for seed in range(3):
        assert torch.equal(compiled(inputs(seed)), clear(inputs(seed)))
        assert source.counts() == (0, TABLES)
    assert torch.equal(net(inputs()), clear(inputs()))
    assert source.counts() == (1, 0)


def test_a_privatised_model_is_exported_and_traced() -> None:
    clear, net, source, _ = both(hashed)
    for strict in (False, True):
        program = torch.export.export(net, (inputs(),), strict=strict).module()
        source.counts()
        assert torch.equal(program(inputs(3)), clear(inputs(3)))
        assert source.counts() == (0, TABLES)
    traced = torch.jit.trace(net, (inputs(),))
    source.counts()
    assert torch.equal(traced(inputs(4)), clear(inputs(4)))
    assert source.counts() == (0, TABLES)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_layers_follow_the_models_type(dtype: Any) -> None:
    for kind in (torch.nn.Embedding, torch.nn.EmbeddingBag):
        clear, net, source, _ = both(kind=kind)
        for model in (clear, net):
            model.to(dtype)
        found, expected = net(inputs()), clear(inputs())
        assert found.dtype is dtype
        if kind is torch.nn.Embedding:
            assert torch.equal(found, expected)
        torch.testing.assert_close(
            found, expected, rtol=1e-2 if dtype.itemsize == 2 else 1e-6, atol=1e-2
        )
        assert source.counts() == (1, 0)
        assert torch.equal(net.float()(inputs()), Net(kind=kind)(inputs()))


def test_autocast_leaves_rows_as_torchs_own_layers_do() -> None:
    clear, net, _, _ = both()
    with torch.autocast("cpu", torch.bfloat16):
        assert net(inputs()).dtype is clear(inputs()).dtype is torch.float32


def test_layers_follow_the_models_device() -> None:
    _, net, _, _ = both(kind=torch.nn.Embedding)
    layer = net.bags[0]
    # Its rows are not on this machine, so they cannot be lost.
    layer.to("meta").half()
    assert (layer([1, 2]).device.type, layer([1, 2]).dtype) == ("cpu", torch.float16)
    layer.to("cpu").float()
    assert torch.equal(layer([1, 2]), torch.tensor(WEIGHTS[0][[1, 2]]))
    if torch.cuda.is_available():
        layer.cuda().half()
        for ids in ([1, 2], torch.tensor([1, 2]), torch.tensor([1, 2]).cuda()):
            assert (layer(ids).device.type, layer(ids).dtype) == ("cuda", torch.float16)


def test_a_first_call_does_not_import_torchs_compiler() -> None:
    code = """
import sys, numpy, torch, hushtable
from hushtable.nn import ClearModel, PrivateEmbeddingBagCollection, privatize
class Feature:
    pooling, max_ids = "sum", 4
    def __init__(self, name): self.name = self.table = name
names = ["0", "1"]
net = torch.nn.ModuleList(torch.nn.EmbeddingBag(9, 2, mode="sum") for _ in names)
net.forward_of = None
class Net(torch.nn.ModuleList):
    def forward(self, ids): return self[0](ids[0]) + self[1](ids[1])
net = Net(net).requires_grad_(False)
tables = {n: hushtable.Table.from_weight(net[int(n)], name=n) for n in names}
expected = net(torch.zeros(2, 1, 1, dtype=torch.long))
report = privatize(net, ClearModel([Feature(n) for n in names], tables))
assert torch.equal(net(torch.zeros(2, 1, 1, dtype=torch.long)), expected)
print(report.last_stats.trips, "torch._dynamo" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["1", "False"]


def test_what_a_layout_leaves_out_is_looked_up_by_the_layer() -> None:
    clear = Net()
    net, source = copy.deepcopy(clear), Source()

    class Bag:
        def __init__(self, rows: np.ndarray, left_out: bool) -> None:
            self.rows, self.kept = rows, np.full(len(rows), not left_out)

    def bags(inferences: Any) -> Any:
        found = source.lookup_many(inferences)
        return [{name: Bag(rows, name == "bags.3") for name, rows in one.items()} for one in found]

    source.lookup_many_bags = bags  # type: ignore[attr-defined]
    privatize(net, source, compare=False)
    for _ in range(3):
        assert torch.equal(net(inputs()), clear(inputs()))
        assert source.counts() == (1, 1)
        assert source.alone == []


def test_batches_take_a_message_for_each_layer_where_servers_take_as_many_keys() -> None:
    clear, net, source, report = both()
    limit, asked = 64, []

    def features(given: Any) -> Any:
        if any(keys > limit for _, _, keys in given):
            raise hushtable.TooManyIds("1 to 64 are taken", ids=1, max_ids=1)
        asked.append([(name, keys) for name, _, keys in given])
        return [WEIGHTS[int(name[-1])][ids] for name, ids, _ in given]

    source.lookup_features = features  # type: ignore[attr-defined]
    for batch, trips in ((5, 1), (9, 0), (21, 0), (22, 1)):
        ids = inputs(batch, batch, 3)
        assert torch.equal(net(ids), clear(ids))
        assert source.counts() == (trips, 0)
        assert report.last_stats.trips == 1
    # 15 ids are 4 inferences, 27 are 8, and 63 are 16, of 6 layers; 66 are more than are taken.
    assert asked == [[(name, keys) for name in NAMES] for keys in (32, 64)]


class Keyed:
    """What is asked of a torchrec.KeyedJaggedTensor, of tensors."""

    def __init__(self, bags: dict[str, list[list[int]]]) -> None:
        self._bags = bags

    def keys(self) -> list[str]:
        return list(self._bags)

    def values(self) -> Any:
        return torch.tensor([one for bags in self._bags.values() for bag in bags for one in bag])

    def lengths(self) -> Any:
        return torch.tensor([len(bag) for bags in self._bags.values() for bag in bags])

    def weights_or_none(self) -> Any:
        return None


SAMPLES = {"bags.1": [[3, 3, 9], []], "bags.2": [[7], [7, 8, 9, 1]]}


def as_dict(bags: dict[str, list[list[int]]]) -> dict[str, Any]:
    return {
        name: (
            torch.tensor([one for bag in found for one in bag]),
            torch.tensor(np.cumsum([0] + [len(bag) for bag in found])),
        )
        for name, found in bags.items()
    }


@pytest.mark.parametrize("wrap", [Keyed, as_dict])
def test_a_collection_goes_with_the_others(wrap: Any) -> None:
    class Mixed(Net):
        def forward(self, ids: Any, features: Any) -> Any:
            rows = self.collection(features)
            return torch.cat([together(self, ids)[:, 0], rows.values().reshape(-1)])

    source = Source()
    net = Mixed()
    net.collection = PrivateEmbeddingBagCollection(source, list(SAMPLES))
    report = privatize(net, source, compare=False)
    assert [len(trip) for trip in report.gathered.trips] == [TABLES + 1]
    found = net(inputs(0, 2, 2), wrap(SAMPLES))
    # Two samples, and one inference for the four ids of the layers of the same features.
    assert [len(trip) for trip in source.trips] == [3]
    assert source.counts() == (1, 0)
    sums = [
        [WEIGHTS[place][bag].sum(0) for place, bag in ((1, one), (2, two))]
        for one, two in zip(*SAMPLES.values(), strict=True)
    ]
    assert np.allclose(found[-16:], np.reshape(sums, -1), atol=1e-6)
    assert torch.equal(found[:-16], Net()(inputs(0, 2, 2))[:, 0])


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trips")
    names = [f"bags.{place}" for place in range(26)]
    weights = {f"{name}.weight": WEIGHTS[place % TABLES] for place, name in enumerate(names)}
    np.savez(folder / "net.npz", **weights)
    hushtable.Model.build(folder / "net.npz", folder / "net", max_ids=MAX_IDS, tables=["bags.*"])
    return folder / "net"


@pytest.fixture(scope="module")
def servers(bundle: Path) -> Iterator[tuple[Any, Any]]:
    options: Any = {"threads": 1, "metrics_addr": "127.0.0.1:0"}
    with (
        hushtable.ServerProcess(bundle, "left", **options) as left,
        hushtable.ServerProcess(bundle, "right", **options) as right,
    ):
        yield left, right


def answers(server: Any) -> int:
    """Requests for answers of any kind that a server has had."""
    with urllib.request.urlopen(server.metrics_url, timeout=10) as reply:
        lines = reply.read().decode().splitlines()
    counted = [line for line in lines if "requests_total{" in line and "Answer" in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in counted)


@pytest.mark.parametrize("count", [5, 26])
def test_a_forward_of_many_bags_is_one_answer(servers: tuple[Any, Any], count: int) -> None:
    left, right = servers
    clear = Net()
    clear.bags = torch.nn.ModuleList(clear.bags[place % TABLES] for place in range(count))
    ids = torch.randint(ROWS, (count, 1, 3))
    net = copy.deepcopy(clear)
    # deepcopy keeps that layers are shared; here each has a table of its own.
    net.bags = torch.nn.ModuleList(copy.deepcopy(bag) for bag in clear.bags)
    with hushtable.connect(left.url, right.url, model="net") as client:
        report = privatize(net, client)
        assert len(report.replaced) == count
        request = report.gathered.request
        assert f"{request.bytes_up:,} bytes up and {request.bytes_down:,} down" in str(report)
        assert torch.equal(net(ids), clear(ids))
        before = [answers(server) for server in servers]
        for _ in range(3):
            assert torch.equal(net(ids), clear(ids))
        assert [answers(server) for server in servers] == [one + 3 for one in before]
        stats = report.last_stats
        assert (stats.trips, stats.requests) == (1, 1)
        assert (stats.bytes_up, stats.bytes_down) == (request.bytes_up, request.bytes_down)
        for bag in net.bags:
            assert bag.last_stats.bytes_up == request.bytes_up
            assert bag.last_stats.version == client.info.version
        # Other ids and fewer, the same bytes.
        net(torch.zeros_like(ids)[:, :, :1])
        assert report.last_stats.bytes_up == request.bytes_up
        # Eight samples of three ids are eight inferences of four, or a message of 32 keys for each
        # layer: whatever is less goes, side by side.
        for batch in (ids.repeat(1, 8, 1), torch.zeros_like(ids.repeat(1, 8, 1))):
            before = answers(left)
            assert torch.equal(net(batch), clear(batch))
            stats = report.last_stats
            assert (stats.trips, stats.requests) == (1, min(8, count))
            assert answers(left) == before + stats.requests
            keys = 8 * 26 * MAX_IDS if count == 26 else 32 * count
            assert {bag.last_stats.keys for bag in net.bags} == {keys}
        # By itself, a layer asks for its own table.
        net.bags[0](ids[0])
        assert net.bags[0].last_stats.bytes_up < request.bytes_up


def test_layers_say_what_they_cost_where_they_are_asked_alone(servers: tuple[Any, Any]) -> None:
    with hushtable.connect(servers[0].url, servers[1].url, model="net") as client:
        layer = hushtable.nn.PrivateEmbedding(client["bags.0"])
        assert layer.last_stats is None
        layer(torch.tensor([1, 2, 3]))
        assert layer.last_stats.keys == 4
        bags = PrivateEmbeddingBagCollection(client, ["bags.1", "bags.2"])
        bags(as_dict(SAMPLES))
        assert bags.last_stats.keys == 2 * 26 * MAX_IDS
        first, second = client.lookup_features([("bags.0", [[1], [2]], 4), ("bags.5", [3], 1)])
        assert np.array_equal(first, WEIGHTS[0][[[1], [2]]])
        assert np.array_equal(second, WEIGHTS[5][[3]])
        assert (client.last_stats.ids, client.last_stats.keys) == (3, 5)
        with pytest.raises(hushtable.IdOutOfRange):
            client.lookup_features([("bags.0", [1], 1), ("bags.1", [ROWS], 1)])
        with pytest.raises(hushtable.UnknownFeature):
            client.lookup_features([("bags.0", [1], 1), ("bags", [1], 1)])
        rows = client.lookup_many_bags([{"bags.0": [1]}, {}, {"bags.1": [2, 2]}])
        assert [sorted(one) for one in rows] == [["bags.0"], [], ["bags.1"]]
        assert all(bag.kept.all() for one in rows for bag in one.values())
        assert client.last_stats.keys == 3 * 26 * MAX_IDS
        assert client.last_stats.bytes_up == 3 * rows[0]["bags.0"].stats.bytes_up
