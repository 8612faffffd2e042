"""The chart, the dashboard and the alert rules: what can be held without a cluster or helm.

`.ci/kube` renders the chart and holds it against Kubernetes' schemas; a test runs it where
HUSHTABLE_NEEDS_KUBE=1 or HUSHTABLE_SCALE_LONG=1, as it builds helm first: 150 s of two cores once,
and 15 s from then on.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from conftest import Deployment
from waiting import HUNG_S, until

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "hushtable"
FRONT = ROOT / "crates" / "serve" / "src" / "shards"
sys.path.insert(0, str(ROOT / "docs"))

import commands  # noqa: E402  (it parses command lines of pages, and these)

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DASHBOARD = json.loads((DEPLOY / "grafana" / "hushtable.json").read_text())
ALERTS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
#: What scraping adds to every series: Prometheus itself, and the chart's ServiceMonitor.
SCRAPED = {"namespace", "instance", "job", "side", "role", "le"}


@dataclass(frozen=True)
class Metric:
    """A metric that a server registers: what it is called in Prometheus' text, and its labels."""

    name: str
    kind: str
    labels: frozenset[str]

    def series(self) -> list[str]:
        ends = {"Counter": ["_total"], "Info": ["_info"], "Gauge": [""]}
        return [self.name + end for end in ends.get(self.kind, ["_bucket", "_sum", "_count"])]


_REGISTERED = re.compile(
    r"\.register(_with_unit)?\(\s*"
    r"(?P<name>\"\w+\"|format!\(\"[\w{}]+\"\)|\w+),\s*"
    r"\"(?:[^\"\\]|\\.)*\",\s*"
    r"(?:Unit::(?P<unit>\w+),\s*)?"
    r"(?P<what>[\w.]+?)(?:\.clone\(\))?,?\s*\)"
)
_PASS_NAMES = re.compile(r"PassNames\s*=\s*PassNames \{(.*?)\};|= PassNames \{(.*?)\};", re.DOTALL)


def _labels(type_: str, text: str) -> frozenset[str]:
    """Labels of a Family: the fields of its label type, which is in the same file or shared."""
    if (found := re.search(r"Family<\s*(\w+)", type_)) is None:
        return frozenset()
    shared = (ROOT / "crates/serve/src/labels.rs").read_text()
    for source in (text, shared):
        if fields := re.search(rf"struct {found[1]} \{{(.*?)\}}", source, re.DOTALL):
            return frozenset(re.findall(r"(\w+): ", fields[1]))
    raise AssertionError(f"where is the type of labels {found[1]}?")


def _field_type(what: str, text: str) -> str:
    """The type of what is registered: a field, a parameter, or a variable that is a field's."""
    name = what.rsplit(".", 1)[-1]
    if made := re.search(rf"let {name} =\s*(.*?);", text, re.DOTALL):
        if "Info::new" in made[1]:
            return "Info"
        name = made[1].removesuffix(".clone()").rsplit(".", 1)[-1]
    found = [
        type_
        for type_ in re.findall(rf"\b{name}: (.*)", text)
        if re.search(r"\b(Counter|Histogram|Gauge)\b", type_) and "::default" not in type_
    ]
    # What one table counts has the name of the family of what all do.
    return str(max(found, key=lambda type_: "Family<" in type_))


def registered() -> Iterator[Metric]:
    """Every metric that Rust's sources register."""
    sources = {path: path.read_text() for path in (ROOT / "crates/serve/src").rglob("*.rs")}
    names = [
        dict(re.findall(r"(\w+): \"(\w+)\"", found[1] or found[2]))
        for text in sources.values()
        for found in _PASS_NAMES.finditer(text)
    ]
    assert names
    for path, text in sources.items():
        if "metrics" not in path.name and path.name not in ("expiry.rs", "vital.rs"):
            continue
        inner = re.search(r"sub_registry_with_prefix\(\"(\w+)\"\)", text)
        prefix = f"hushtable_{inner[1]}_" if inner else "hushtable_"
        for match in _REGISTERED.finditer(text):
            type_ = _field_type(match["what"], text)
            kind = next(k for k in ("Info", "Counter", "Histogram", "Gauge") if k in type_)
            labels = frozenset({"version", "side"}) if kind == "Info" else _labels(type_, text)
            unit = f"_{match['unit'].lower()}" if match["unit"] else ""
            literal = re.search(r"\"([\w{}]+)\"", match["name"])
            for by in names if "{" in match["name"] or not literal else names[:1]:
                name = literal[1].format(**by) if literal else by[match["name"]]
                yield Metric(f"{prefix}{name}{unit}", kind, labels)


#: Series by name.
EXPORTED = {series: metric for metric in registered() for series in metric.series()}


def metrics_of(expression: str) -> list[str]:
    return re.findall(r"\bhushtable_[a-z_]+\b", expression)


def expressions() -> list[tuple[str, str]]:
    """Each with where it is."""
    panels = [(p["title"], target["expr"]) for p in PANELS for target in p["targets"]]
    variables = [(v["name"], json.dumps(v["query"])) for v in DASHBOARD["templating"]["list"]]
    return [*panels, *variables, *((rule["alert"], rule["expr"]) for rule in RULES)]


def test_what_is_read_out_of_the_sources_is_what_a_server_exports(deployment: Deployment) -> None:
    with urllib.request.urlopen(str(deployment.left.metrics_url), timeout=HUNG_S) as answer:
        text = answer.read().decode()
    shown = {match[1]: match[2] or "" for match in re.finditer(r"^(\w+)(\{.*\})? \S+$", text, re.M)}
    assert len(shown) > 40
    assert set(shown) - set(EXPORTED) == set()
    for series, labels in shown.items():
        names = set(re.findall(r"(\w+)=\"", labels)) - {"le"}
        assert names == EXPORTED[series].labels, series
    # All others are other schemes', and a front's.
    of_front = {
        "shard_requests_total": {"shard", "outcome"},
        "hedges_total": set(),
        "shard_seconds_bucket": {"shard"},
        "shard_replicas": {"shard"},
        "shard_replicas_ready": {"shard"},
        "refused_absent_total": set(),
        "own_seconds_bucket": set(),
    }
    for name, own in of_front.items():
        assert EXPORTED[f"hushtable_front_{name}"].labels == own, name


def test_every_metric_that_is_asked_for_is_exported() -> None:
    for where, expression in expressions():
        found = metrics_of(expression)
        assert found or where in ("datasource", "HushtableServerDown")
        assert [name for name in found if name not in EXPORTED] == [], where
        assert expression.count("(") == expression.count(")"), where


def test_what_is_grouped_and_chosen_by_are_labels_that_there_are() -> None:
    for where, expression in expressions():
        found = metrics_of(expression)
        of_each = [EXPORTED[name].labels for name in found]
        shared = of_each[0].intersection(*of_each) if found else frozenset()
        # A shard's own series have its number from the ServiceMonitor; a front speaks of several.
        scraped = SCRAPED if any("_front_" in name for name in found) else SCRAPED | {"shard"}
        for names in re.findall(r"\bby \((.*?)\)", expression):
            assert {name.strip() for name in names.split(",")} <= shared | scraped, where
        for name, chosen in re.findall(r"\b(hushtable_[a-z_]+)\{(.*?)\}", expression):
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", chosen))
            assert labels, where
            assert labels <= EXPORTED[name].labels | scraped, where


def test_the_chart_and_the_page_name_no_other_metrics() -> None:
    texts = [*CHART.rglob("*.yaml"), *CHART.rglob("*.tpl"), *CHART.rglob("*.txt")]
    texts.append(ROOT / "docs" / "kubernetes.md")
    bases = {metric.name for metric in EXPORTED.values()}
    named = {name for path in texts for name in metrics_of(path.read_text())}
    # `hushtable_front_` stands for all of a front's.
    assert {name for name in named if not name.endswith("_")} <= bases | set(EXPORTED)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_of_what_it_knows(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"] and rule["annotations"]["description"]
    used = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
    grouped = [
        {name.strip() for name in names.split(",")}
        for names in re.findall(r"\bby \((.*?)\)", rule["expr"])
    ]
    # Of series that nothing groups all labels are left.
    assert used <= (set.intersection(*grouped) if grouped else SCRAPED), rule["alert"]


def test_alerts_and_panels_are_there_once() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names)) > 8
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, f"{panel['title']} lies over another panel"
        taken |= cells


def test_what_lies_in_two_places_is_one_file() -> None:
    for link, name in [
        (DEPLOY / "grafana" / "hushtable.json", "dashboard.json"),
        (DEPLOY / "prometheus" / "alerts.yaml", "alerts.yaml"),
    ]:
        # A checkout without links has a file of some bytes here, whose text is the link's end.
        assert link.is_symlink()
        assert not link.readlink().is_absolute()
        assert link.resolve(strict=True) == CHART / "files" / name
        assert name in (CHART / "templates" / "monitoring.yaml").read_text()
    assert [path for path in DEPLOY.rglob("*") if path.is_file() and not path.stat().st_size] == []


# What containers run.

_SAMPLES = {
    "{{ .Values.side }}": "left",
    "{{ $shard }}": "3",
    "{{ .Values.shards.count }}": "4",
    "{{ .Values.onion.parameters }}": "n4096_128",
    "{{ .Values.onion.keysMemoryMax }}": "1GiB",
    "{{ .Values.listenAddress }}": "0.0.0.0",
    "{{ mul .Values.shards.drainSeconds 1000 }}": "10000",
    "{{ mul .Values.fronts.drainSeconds 1000 }}": "15000",
}


def server_words(template: str, scheme: str) -> list[str]:
    """The command line of a template's server, with all that it has under any other condition."""
    text = (CHART / "templates" / template).read_text()
    found = re.search(r"\n +command: \[hushtable\]\n +args:\n(.*?)\n +ports:", text, re.DOTALL)
    assert found
    of_onion = re.compile(
        r" *{{- if eq \.Values\.scheme \"onion\" }}\n(.*?) *{{- else }}\n(.*?) *{{- end }}\n",
        re.DOTALL,
    )
    assert len(of_onion.findall(found[1])) == 1
    kept = of_onion.sub(r"\1" if scheme == "onion" else r"\2", found[1])
    words = [line.strip() for line in kept.splitlines()]
    words = [word[2:] for word in words if word.startswith("- ") and word != "- {{ . | quote }}"]
    for placeholder, sample in _SAMPLES.items():
        words = [word.replace(placeholder, sample) for word in words]
    assert not any("{{" in word for word in words), words
    return ["hushtable", *words]


def extra(role: str) -> list[str]:
    files = [yaml.safe_load(path.read_text()) for path in (CHART / "ci").glob("*.yaml")]
    found = [word for values in files for word in values.get(role, {}).get("extraArgs", [])]
    assert found
    return found


#: What says whose servers they are.
_ROLES = {"pair": "--side=left", "onion": "--scheme=onion"}


@pytest.mark.parametrize("scheme", _ROLES)
def test_a_shard_takes_what_the_chart_gives_it(scheme: str) -> None:
    words = server_words("shards.yaml", scheme)
    assert {"--shard=3", _ROLES[scheme], "--window-us=0", "--log-json"} <= set(words)
    assert len(set(_ROLES.values()) & set(words)) == 1
    assert ("--shards=4" in words) == (scheme == "onion")
    assert commands.defect([*words, *extra("shards")]) is None


@pytest.mark.parametrize("scheme", _ROLES)
def test_a_front_takes_what_the_chart_gives_it(scheme: str) -> None:
    words = server_words("fronts.yaml", scheme)
    assert len(set(_ROLES.values()) & set(words)) == 1
    assert any(word.startswith("--shards-file=") for word in words)
    assert commands.defect([*words, *extra("fronts")]) is None


@pytest.mark.parametrize(
    ("template", "part"), [("shards.yaml", "--shard 3"), ("fronts.yaml", "--front")]
)
def test_what_fetches_is_a_command(template: str, part: str) -> None:
    script = (CHART / "files" / "fetch.sh").read_text()
    (line,) = re.findall(r"^ *(hushtable .*?) >", script, re.MULTILINE)
    words = shlex.split(line.replace('"$(cat "$FETCH_SOURCE")"', "s3://models/clicks"))
    assert words[-1] == "$@"
    option = part.split()[0]
    text = (CHART / "templates" / template).read_text()
    assert len(re.findall(rf'"part" \(list "{option}"', text)) == 2  # once, and beside the server
    assert commands.defect([*words[:-1], *part.split()]) is None
    (of_onion,) = re.findall(
        r"\"onion\" \| ternary \(list (.*?)\) list", (CHART / "templates" / "_pods.tpl").read_text()
    )
    assert commands.defect([*words[:-1], *shlex.split(of_onion), *part.split()]) is None


# The values.

#: The least that there has to be.
LEAST = {
    "side": "left",
    "bundle": {"source": "/b"},
    "shards": {"count": 1},
    "tls": {"mode": "insecure"},
}


def merged(over: dict[str, Any], under: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(under)
    for key, value in over.items():
        inner = made.get(key)
        both = isinstance(value, dict) and isinstance(inner, dict)
        made[key] = merged(value, inner) if both else value
    return made


def invalid(values: dict[str, Any]) -> str | None:
    validator = jsonschema.Draft7Validator(SCHEMA)
    error = jsonschema.exceptions.best_match(validator.iter_errors(merged(values, VALUES)))
    return error and error.message


def test_the_schema_takes_the_defaults_and_one_side() -> None:
    without_side = {name: value for name, value in LEAST.items() if name != "side"}
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert invalid({}) is not None
    assert invalid(LEAST) is None
    assert invalid({**without_side, "scheme": "onion"}) is None
    assert invalid({**without_side, "scheme": "pair"}) is not None
    for path in (CHART / "ci").glob("*.yaml"):
        assert invalid(yaml.safe_load(path.read_text())) is None, path


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"side": "both"}, "both"),
        ({"scheme": "onion"}, "left"),
        ({"scheme": "single"}, "single"),
        ({"scheme": "pair", "onion": {"parameters": "n256_test"}}, "n256_test"),
        ({"side": ["left", "right"]}, "left"),
        ({"right": {"shards": {"count": 2}}}, "right"),
        ({"shards": {"count": 0}}, "0"),
        ({"shards": {"replica": 2}}, "replica"),
        ({"fronts": {"replicas": 1}}, "1"),
        ({"fronts": {"shardsFile": {"ca": "ca.pem"}}}, "ca"),
        ({"fronts": {"extraArgs": ["serve"]}}, "serve"),
    ],
)
def test_the_schema_refuses_what_makes_no_sense(values: dict[str, Any], says: str) -> None:
    message = invalid(merged(values, LEAST))
    assert message is not None
    assert says in message


def test_every_default_is_in_the_schema_and_every_value_has_one() -> None:
    def holes(values: Any, schema: dict[str, Any], at: str) -> Iterator[str]:
        properties = schema.get("properties", {})
        if not isinstance(values, dict) or not properties or "$ref" in schema:
            return
        for name in properties.keys() ^ values.keys():
            yield f"{at}{name}"
        for name in properties.keys() & values.keys():
            yield from holes(values[name], properties[name], f"{at}{name}.")

    # Those that have to be given, those of a front that it has defaults for, and Helm's own.
    without = {"side", "bundle.source", "shards.count", "global"}
    of_file = SCHEMA["properties"]["fronts"]["properties"]["shardsFile"]["properties"]
    of_file = of_file.keys() - VALUES["fronts"]["shardsFile"].keys()
    without |= {f"fronts.shardsFile.{name}" for name in of_file}
    assert set(holes(VALUES, SCHEMA, "")) == without


def test_the_schema_has_the_bounds_of_the_servers() -> None:
    shards = (ROOT / "crates/table/src/model/shards.rs").read_text()
    bounds = {
        name: int(value.replace("_", ""))
        for name, value in re.findall(r"pub const (\w+_COUNT_MAX): usize = ([\d_]+);", shards)
    }
    of_shards = SCHEMA["properties"]["shards"]["properties"]
    assert of_shards["count"]["maximum"] == bounds["SHARD_COUNT_MAX"]
    assert of_shards["replicas"]["maximum"] == bounds["REPLICA_COUNT_MAX"]
    source = (FRONT / "file.rs").read_text()
    found = re.search(r"struct FleetFile \{(.*?)\n\}", source, re.DOTALL)
    assert found
    fields = set(re.findall(r"pub (\w+): ", found[1]))
    settable = SCHEMA["properties"]["fronts"]["properties"]["shardsFile"]["properties"]
    template = (CHART / "templates" / "fronts.yaml").read_text()
    written = {"ca", "cert", "key", "start_s_max"}
    assert all(re.search(rf"^    {name} = ", template, re.MULTILINE) for name in written)
    assert "[[shard]]" in template
    assert fields == set(settable) | written | {"shard"}


def test_versions_are_those_of_the_tree() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    assert chart["appVersion"] == workspace["version"]
    pinned = re.search(r"^ray==(\S+)$", (ROOT / "python/requirements-dev.txt").read_text(), re.M)
    assert pinned
    assert VALUES["ray"]["version"] == pinned[1]


def test_the_page_names_values_that_there_are() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    named = set(re.findall(r"`([a-z]\w+(?:\.\w+)+)`", page))
    named = {name for name in named - {"shards.toml"} if name.split(".")[0] in SCHEMA["properties"]}
    assert len(named) > 15
    for name in named:
        at: Any = SCHEMA
        for key in name.split("."):
            if "$ref" in at:
                at = SCHEMA["definitions"][at["$ref"].rsplit("/", 1)[-1]]
            assert key in at.get("properties", {}), name
            at = at["properties"][key]
    for block in re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        values = yaml.safe_load(block)
        if "scheme" in values:
            assert invalid(merged(values, {"tls": {"mode": "insecure"}})) is None
        elif "side" in values:
            assert invalid(values) is None
    assert len(page.splitlines()) < 200


# fetch.sh, with the real shell and its tools; a store is a folder, and what copies from it copies.

_COPIES = """#!/bin/sh
# hushtable shard fetch SOURCE -o FOLDER PART...: as the command says where its copy is.
[ "$1 $2 $4" = "shard fetch -o" ] || exit 2
[ -d "$3" ] || { echo "there is no $3" >&2; exit 1; }
echo "$6 ${7-}" >"$3/../asked"
made=$5/clicks-$(basename "$3")
[ -d "$made" ] || cp -r "$3" "$made"
echo copied
echo "$made"
"""


@dataclass
class Pod:
    """A pod's volume, and the store that it fetches from."""

    folder: Path

    def __post_init__(self) -> None:
        for name in ("bin", "volume", "store"):
            (self.folder / name).mkdir()
        (self.folder / "bin" / "hushtable").write_text(_COPIES)
        (self.folder / "bin" / "hushtable").chmod(0o755)

    @property
    def bundles(self) -> Path:
        return self.folder / "volume" / "bundles"

    @property
    def current(self) -> Path:
        return self.folder / "volume" / "current"

    def want(self, version: str, *, is_there: bool = True) -> None:
        if is_there:
            (self.folder / "store" / version).mkdir(exist_ok=True)
            (self.folder / "store" / version / "manifest.json").write_text(version)
        (self.folder / "source.next").write_text(str(self.folder / "store" / version))
        (self.folder / "source.next").replace(self.folder / "source")

    def run(self, *arguments: str, stderr: Any = subprocess.PIPE) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["/bin/sh", str(CHART / "files" / "fetch.sh"), *arguments],
            env={
                "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
                "FETCH_FOLDER": str(self.folder / "volume"),
                "FETCH_SOURCE": str(self.folder / "source"),
                "FETCH_KEEP": "2",
                "FETCH_EVERY_S": "0.05",
            },
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    def ran(self, *arguments: str) -> tuple[int, str, str]:
        process = self.run(*arguments)
        out, errors = process.communicate(timeout=HUNG_S)
        return process.returncode, out, errors

    def holds(self) -> str:
        return (self.current / "manifest.json").read_text()

    def versions(self) -> list[str]:
        """Names in the folder of bundles, those among them that come or go too."""
        return [path.name for path in self.bundles.iterdir()]

    def newest(self) -> str:
        """What a server would find newest in the folder that it watches."""
        folders = [path for path in self.bundles.iterdir() if not path.name.startswith(".")]
        return max(folders, key=lambda path: path.stat().st_mtime_ns).name


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_a_pod_starts_with_the_version_that_is_wanted(pod: Pod) -> None:
    pod.want("1")
    said = f"fetch: {pod.bundles}/clicks-1 is current\n"
    assert pod.ran("once", "--shard", "3") == (0, said, "")
    assert pod.holds() == "1"
    assert (pod.folder / "store" / "asked").read_text() == "--shard 3\n"


def test_a_pod_starts_without_its_store_only_where_it_has_a_version(pod: Pod) -> None:
    pod.want("1", is_there=False)
    code, _, errors = pod.ran("once", "--front")
    assert code == 1
    assert "there is no" in errors
    pod.want("1")
    assert pod.ran("once", "--front")[0] == 0
    pod.want("2", is_there=False)
    code, _, errors = pod.ran("once", "--front")
    assert code == 0
    assert f"going on with {pod.bundles}/clicks-1" in errors
    assert pod.holds() == "1"


def test_the_next_version_and_the_one_before_come_beside_a_server(pod: Pod) -> None:
    pod.want("1")
    assert pod.ran("once", "--shard", "0")[0] == 0
    said = pod.folder / "errors"
    with said.open("w") as errors:
        following = pod.run("follow", "--shard", "0", stderr=errors)
    try:
        for version in ("2", "3", "2"):
            pod.want(version)
            until(
                lambda version=version: pod.holds() == version and len(pod.versions()) == 2,
                lambda: (pod.holds(), pod.versions()),
            )
            assert pod.newest() == f"clicks-{version}"
        # What did not come is tried again, and harms nothing that is there.
        pod.want("4", is_there=False)
        again = "store/4 was not brought; again in 0.05 s"
        until(lambda: said.read_text().count(again) >= 2, lambda: said.read_text())
        assert pod.holds() == "2"
    finally:
        following.send_signal(signal.SIGTERM)
        following.communicate(timeout=HUNG_S)
    assert following.returncode == 0
    assert {path.name for path in pod.bundles.iterdir()} == {"clicks-2", "clicks-3"}


def test_the_chart_renders_as_kubernetes_takes_it() -> None:
    if not any(os.environ.get(name) for name in ("HUSHTABLE_NEEDS_KUBE", "HUSHTABLE_SCALE_LONG")):
        pytest.skip("building helm takes minutes: HUSHTABLE_NEEDS_KUBE=1 or HUSHTABLE_SCALE_LONG=1")
    done = subprocess.run([ROOT / ".ci" / "kube"], capture_output=True, text=True, timeout=3600)
    if done.returncode == 0 and "is not checked" in done.stdout:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^the Helm chart: 0 defects", done.stdout, re.MULTILINE)
