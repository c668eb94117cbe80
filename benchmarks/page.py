"""The page and its pictures, made from the numbers of one run that are kept beside them.

    python -m benchmarks.page keep FOLDER      # keeps the numbers of FOLDER/*.json in pictures/figures.json, and writes
    python -m benchmarks.page watch            # draws kafka-async top and the monitor's page anew
    python -m benchmarks.page                  # the tables of the pages and the pictures from what is kept

A run is all commands at one commit, on one machine, with the same versions: ``keep`` refuses anything else, so that no two numbers
of the page belong to different programs. A test compares the pages and the pictures with the numbers.
"""

import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, Final

from attrs import frozen

from benchmarks import lanes, svg, watched
from benchmarks.processing import PLAIN

HERE: Final = Path(__file__).parent
PICTURES: Final = HERE / "pictures"
KEPT: Final = PICTURES / "figures.json"
RUN: Final = PICTURES / "lanes.json"
WATCHED: Final = PICTURES / "watched.json"
CSS: Final = HERE.parent / "kafka_async/adapters/web/page.css"
PEERS: Final = ("kafka_async", "aiokafka", "confluent-kafka", "kafka-python", "Java")
Series = Mapping[str, list[float]]


# --- what is kept ---------------------------------------------------------------------------------------------------------------


def gather(files: Sequence[Path]) -> dict[str, Any]:
    """Return the numbers of all commands as one run. Raises ``ValueError`` if they are of different commits or machines."""
    about: dict[str, Any] = {}
    dates: list[str] = []
    groups: list[dict[str, Any]] = []
    for path in files:
        found = json.loads(path.read_text())
        dates.append(found["about"].pop("date"))
        about = about or found["about"]
        if found["about"] != about:
            raise ValueError(f"{path}: {found['about']}; expected {about} as in {files[0]}")
        if about["commit"].endswith("-dirty") or about["commit"] == "unknown":
            raise ValueError(f"{path} is of commit {about['commit']}; expected one that others can check out")
        groups += [_kept(group) for group in found["groups"]]
    named = [(group["command"], group["title"], json.dumps(group["shape"])) for group in groups]
    if twice := [name for name in dict.fromkeys(named) if named.count(name) > 1]:
        raise ValueError(f"measured more than once: {twice}")
    return {"about": {**about, "from": min(dates), "to": max(dates)}, "groups": groups}


def _kept(group: dict[str, Any]) -> dict[str, Any]:
    series: dict[str, dict[str, list[float]]] = {}
    for run in group["runs"]:
        for name, value in run["values"].items():
            series.setdefault(run["client"], {}).setdefault(name, []).append(float(f"{value:.4g}"))
    failed = {run["client"]: run["error"] for run in group["runs"] if run["error"]}
    kept = {name: group[name] for name in ("command", "title", "scenario", "shape")}
    return {**kept, "series": series, **({"failed": failed} if failed else {})}


def dump(kept: dict[str, Any]) -> str:
    """Return what is kept as JSON in which the values of one client are one line."""
    flat = re.compile(r"\[\s+([^][{}]*?)\s+\]")
    return flat.sub(lambda found: f"[{', '.join(found[1].split())}]".replace(",,", ","), json.dumps(kept, indent=1)) + "\n"


@frozen
class Figures:
    """The numbers of one run."""

    about: dict[str, Any]
    groups: list[dict[str, Any]]

    def values(self, command: str, metric: str, client: str, scenario: str = "", **shape: object) -> list[float]:
        """Return what each round gave, or nothing if it was not measured."""
        for group in self.groups:
            named = scenario in ("", group["scenario"]) or group["title"].startswith(f"{command}: {scenario} ")
            fits = group["command"] == command and named
            if fits and shape.items() <= group["shape"].items():
                found: list[float] = group["series"].get(client, {}).get(metric, [])
                return found
        return []


# --- tables ---------------------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Row:
    """One line: what is measured, and who stands in which column."""

    label: str
    command: str
    metrics: tuple[tuple[str, Callable[[float], str]], ...]
    """Key and format: the first, and others in brackets."""
    clients: Mapping[str, str]
    """Column: client."""
    scenario: str = ""
    shape: Mapping[str, object] = {}

    def cells(self, figures: Figures, columns: Sequence[str]) -> Iterator[str]:
        """Yield the cells: medians; nothing where it was not measured."""
        for column in columns:
            client = self.clients.get(column, "")
            found = [
                form(statistics.median(values))
                for metric, form in self.metrics
                if (values := figures.values(self.command, metric, client, self.scenario, **self.shape))
            ]
            yield found[0] + (f" ({', '.join(found[1:])})" if found[1:] else "") if found else ""


def millions(value: float) -> str:
    return f"{value / 1e6:.2f} M"


def whole(value: float) -> str:
    return f"{value:,.0f}"


def fixed(digits: int) -> Callable[[float], str]:
    return lambda value: f"{value:.{digits}f}"


_RATE: Final = (("records_per_s", millions), ("cpu_us_per_record", fixed(2)))
_LISTS: Final = {
    "kafka_async": "kafka_async.getmany",
    "aiokafka": "aiokafka.getmany",
    "confluent-kafka": "confluent.tuned",
    "kafka-python": "kafka_python.poll",
    "Java": "java.perf",
}
_DEFAULT: Final = {"confluent-kafka": "confluent.consume"}
_GROUPS: Final = {**_LISTS, **_DEFAULT}


def _reading(label: str, clients: Mapping[str, str] = _LISTS, **shape: object) -> Row:
    wanted = {"size": 100, "codec": "none", "partitions": 1, **shape}
    return Row(label=label, command="throughput", metrics=_RATE, clients=clients, shape=wanted)


def _paced(label: str, command: str, metric: str, digits: int) -> Row:
    return Row(label=label, command=command, metrics=((metric, fixed(digits)),), clients=_GROUPS)


def _settling(label: str, metric: str, protocol: str) -> Row:
    clients = {"kafka_async": "kafka_async.getmany", "confluent-kafka": "confluent.consume"}
    return Row(label=label, command="rebalance", metrics=((metric, whole),), clients=clients, scenario=protocol)


def _handling(label: str, ms: int, clients: Mapping[str, str]) -> Row:
    return Row(
        label=label,
        command="processing",
        metrics=(("handlers_per_s", whole), ("cpu_us", fixed(1))),
        clients=clients,
        scenario=f"{ms} ms",
    )


def _jobs(label: str, scenario: str, ours: str, **others: str) -> Row:
    clients = {"kafka_async": f"kafka_async.{ours}", "confluent-kafka": "confluent", "Java": "java"} | others
    return Row(label=label, command="share", metrics=(("jobs_per_s", whole),), clients=clients, scenario=scenario)


def _waiting(label: str, scenario: str, clients: Mapping[str, str]) -> Row:
    return Row(label=label, command="faults", metrics=(("stall_s", fixed(2)),), clients=clients, scenario=scenario)


_KEYED: Final = {"kafka_async": "kafka_async.key", "aiokafka": "aiokafka.gather", "confluent-kafka": "confluent.threads"}
_FASTSTREAM: Final = {"kafka_async": "kafka_async.none", "aiokafka": "faststream"}
_COLD: Final = {"aiokafka": "aiokafka", "confluent-kafka": "confluent", "kafka-python": "kafka_python"}
_AT_200: Final = {"kafka_async": "kafka_async.async", "confluent-kafka": "confluent", "Java": "java"}

CONSUMERS: Final[tuple[tuple[str, tuple[Row, ...]], ...]] = (
    (
        "Whole topics, records/s (CPU us per record)",
        (
            _reading("100 B, 1 partition, lists of records"),
            _reading("100 B, 6 partitions, lists of records", partitions=6),
            _reading("the same, confluent-kafka with all its defaults", _DEFAULT, partitions=6),
            _reading(
                "one by one, `async for`", {"kafka_async": "kafka_async.iterate", "aiokafka": "aiokafka.iterate"}, partitions=6
            ),
            _reading("Arrow batches, `getarrow`", {"kafka_async": "kafka_async.arrow"}, partitions=6),
            _reading("lists, without an event loop (`kafka_async.sync`)", {"kafka_async": "kafka_async.sync"}, partitions=6),
            _reading("1 KB, 1 partition, lists", size=1000),
            _reading("1 KB, 6 partitions, lists", size=1000, partitions=6),
            *(_reading(f"100 B, 1 partition, {codec}, lists", codec=codec) for codec in ("lz4", "zstd", "snappy", "gzip")),
        ),
    ),
    (
        "Records as they come",
        (
            _paced("500 records/s, produced to received, p50 in ms", "latency", "p50_ms", 2),
            _paced("the same, p99", "latency", "p99_ms", 2),
            _paced("the same, CPU in % of a core", "latency", "cpu_percent", 1),
            _paced("100 records/s over 10 partitions, CPU %", "partitions", "cpu_percent_few", 1),
            _paced("100 records/s over 1,000 partitions, CPU %", "partitions", "cpu_percent_many", 1),
            _paced("nothing to read, CPU %", "idle", "cpu_percent", 2),
        ),
    ),
    (
        "Memory and start",
        (
            Row(
                label="peak memory, 100 B, 6 partitions, MiB",
                command="throughput",
                metrics=(("peak_rss_mib", whole),),
                clients=_LISTS,
                shape={"size": 100, "codec": "none", "partitions": 6},
            ),
            Row(
                label="importing the consumer's class, CPU s",
                command="imports",
                metrics=(("cpu_s", fixed(3)),),
                clients={"kafka_async": "kafka_async.import", **_COLD},
                scenario="import",
            ),
            Row(
                label="a program that reads one record in a group, CPU s",
                command="imports",
                metrics=(("cpu_s", fixed(3)),),
                clients={"kafka_async": "kafka_async.getone", **_COLD},
                scenario="one record, in a group",
            ),
        ),
    ),
    (
        "A second member joins a group, ms",
        tuple(
            row
            for protocol, name in (("classic", "classic protocol"), ("consumer", "KIP-848"))
            for row in (
                _settling(f"{name}: until it reads", "second_ms", protocol),
                _settling(f"{name}: pause of a partition that stays", "kept_gap_ms", protocol),
                _settling(f"{name}: pause of a partition that moves", "moved_gap_ms", protocol),
            )
        ),
    ),
    (
        "Handlers/s, 100 at once (CPU us each)",
        tuple(
            row
            for ms in (0, 1, 10)
            for row in (
                _handling(f"handlers of {ms} ms", ms, _KEYED),
                _handling("the same without order; FastStream in aiokafka's column", ms, _FASTSTREAM),
            )
        ),
    ),
    (
        "Share groups, jobs/s",
        (
            _jobs("50 handlers of 5 ms", "50 handlers of 5 ms", "async"),
            _jobs("the same, plain handlers on threads", "50 handlers of 5 ms", "plain", **{"confluent-kafka": "", "Java": ""}),
            _jobs("50 uneven handlers", "50 uneven handlers", "async"),
            _jobs(
                "the same, plain handlers; peers with larger batches",
                "50 uneven handlers",
                "plain",
                **{"confluent-kafka": "confluent.2000", "Java": "java.2000"},
            ),
            _jobs("no work", "no work", "async"),
            Row(
                label="200 jobs/s, produced to received, p50 in ms (p99)",
                command="share latency",
                metrics=(("p50_ms", fixed(2)), ("p99_ms", fixed(2))),
                clients=_AT_200,
            ),
        ),
    ),
    (
        "Longest wait of a record when ..., s",
        tuple(
            row
            for scenario, label in (
                ("connections-cut", "connections are cut every 2 s, five times"),
                ("black-hole", "nothing passes for 5 s"),
                ("rolling-restart", "each broker is restarted, one after the other"),
                ("broker-killed", "a leader is killed"),
                ("coordinator-killed", "the coordinator is killed"),
                ("broker-frozen", "a leader is frozen for 5 s"),
                ("member-killed", "a member is killed, another one joins"),
                ("hostile-frames", "responses are damaged"),
            )
            for row in (
                _waiting(label, scenario, _GROUPS),
                _waiting(
                    "the same, KIP-848", scenario, {name: f"{_GROUPS[name]} (848)" for name in ("kafka_async", "confluent-kafka")}
                ),
            )
        ),
    ),
)

SPARK: Final = ("kafka_async", "Spark's connector", "prepared batches")
_SECONDS: Final = (("seconds", fixed(2)), ("cpu_s", fixed(2)))
_ROWS: Final = dict(zip(SPARK, ("kafka_async.read", "jvm.default", "prebuilt.read"), strict=True))


def _job(label: str, command: str, clients: Mapping[str, str] = _ROWS, **shape: object) -> Row:
    return Row(label=label, command=command, metrics=_SECONDS, clients=clients, shape=shape)


_VALUE: Final = {"kafka_async": "kafka_async.value", "Spark's connector": "jvm.default"}
ON_SPARK: Final = (
    _job("2 M records of 100 B, all columns", "spark batch", size=100, codec="none"),
    _job("the same, value only", "spark batch", _VALUE, size=100, codec="none"),
    _job("1 M records of 1 KB, all columns", "spark batch", size=1000, codec="none"),
    _job("JSON to four columns, 1 M records", "spark json"),
    _job("the same, 1 % of them bad", "spark json, 1 % bad"),
    _job("the same, numbers in STRING fields", "spark json, loose"),
    _job("catch-up of a stream of 2 M records, 1 M a trigger", "spark stream"),
    _job("`take(5)` of 17 records", "spark take"),
    _job("the 17 records as a stream, from start to end", "spark short"),
    Row(
        label="a micro-batch of a stream at 200 records/s",
        command="spark latency",
        metrics=(("batch_ms", lambda value: f"{value / 1000:.2f}"),),
        clients=_ROWS,
    ),
)


AROUND: Final = (
    ("nothing", PLAIN),
    ("`rate`, never reached", "kafka_async.rate"),
    ("`breaker`, closed", "kafka_async.breaker"),
    ("a handler that decodes its value with msgspec", "kafka_async.decoded"),
    ("a router that decodes the same: the second of two routes by header", "kafka_async.routed"),
    ("`tracing`, without an SDK", "kafka_async.traced.api"),
    ("`tracing`, with OpenTelemetry's SDK", "kafka_async.traced"),
)
ABOUT_AROUND: Final = """What stands around a handler: `process` with order by key and handlers of 0 ms, 100 at once, in turn.
Values are JSON of 100 B, with the type and the producer's span in headers. The SDK makes a span and a duration of each record, and
exports them to nowhere. A CPU is compared with that of `process` with nothing around its handler in the same round."""


NOTES: Final = (
    (
        "throughput",
        """- Medians of the rounds; an empty cell was not measured. Each client runs in a process of its own, with its defaults.
The clients take turns, so that a busy moment hits none of them alone.""",
    ),
    (
        "throughput",
        """- Whole topics: the clock starts when the first batch has come. confluent-kafka runs without its pause of a second when
its queue is full (`fetch.queue.backoff.ms=1`), except in the row that says so. It checks no CRCs; all others do. Java
is measured by Kafka's own tool, `kafka-consumer-perf-test`. Peak memory is that of these runs.""",
    ),
    (
        "processing",
        """- Handlers: aiokafka runs `asyncio.gather` of 100, confluent-kafka 100 threads; both lose the order within a batch and
wait for its slowest record. FastStream has `max_workers=100`, and commits what was handed out. `process` keeps the
order of each key and commits what is done.""",
    ),
    (
        "share",
        """- Share groups: one member, one partition, explicit acknowledgements. Our rows without a note have `async def` handlers,
which sleep on the event loop; the peers' handlers are threads. Uneven: one job in fifty takes 103 ms and the others 3
ms. Larger batches are of 2,000 jobs.""",
    ),
    (
        "faults",
        """- Faults: a group of three reads 300 records/s of six partitions from three brokers, through proxies, and commits after
every batch. A record waits from its acknowledgement by Kafka to its delivery.""",
    ),
)
"""What the rows of each command need to be understood; a note is left out if the command was not measured."""
ABOUT_SPARK: Final = """On Spark: `local[2]`, 6 partitions, record batches of 16 KB as Kafka's own producer makes them; this source
and Spark's own connector in one session, in turn. CPU is that of all processes but the broker. "Prepared
batches" is a source that reads nothing and returns what was made before."""
LINE: Final = 138
"""Letters of a line of the page."""


def consumers(figures: Figures) -> str:
    """Return the table of the clients. A row that nobody was measured for is left out."""
    lines = [_line("", *PEERS), "|---" * (len(PEERS) + 1) + "|"]
    for heading, rows in CONSUMERS:
        shown = [(row.label, cells) for row in rows if any(cells := list(row.cells(figures, PEERS)))]
        if shown:
            lines += [_line(f"**{heading}**", *[""] * len(PEERS)), *(_line(label, *cells) for label, cells in shown)]
    return "\n".join(lines)


def around(figures: Figures) -> str:
    """Return the table of what stands around a handler.

    A row that was not measured is left out, and all if none was.
    """
    columns = ("around a handler", "handlers/s", "CPU us each", "CPU, times nothing")
    lines = [_line(*columns), "|---" * len(columns) + "|"]
    plain = figures.values("processing", "cpu_us", PLAIN, "around")
    for label, client in AROUND:
        rates, cpu = (figures.values("processing", metric, client, "around") for metric in ("handlers_per_s", "cpu_us"))
        if rates and plain:
            times = statistics.median(mine / bare for mine, bare in zip(cpu, plain, strict=False))
            lines.append(_line(label, whole(statistics.median(rates)), f"{statistics.median(cpu):.1f}", f"{times:.2f}"))
    return "\n".join([fill(" ".join(ABOUT_AROUND.split()), LINE), "", *lines]) if plain else ""


def spark(figures: Figures) -> str:
    """Return the table of Spark's sources; nothing if they were not measured."""
    lines = [_line("seconds (CPU)", *SPARK), "|---" * (len(SPARK) + 1) + "|"]
    shown = [(row.label, cells) for row in ON_SPARK if any(cells := list(row.cells(figures, SPARK)))]
    return (
        "\n".join([fill(" ".join(ABOUT_SPARK.split()), LINE), "", *lines, *(_line(label, *cells) for label, cells in shown)])
        if shown
        else ""
    )


def notes(figures: Figures) -> str:
    """Return what is to be known about the rows that are shown."""
    measured = {group["command"] for group in figures.groups}
    return "\n".join(fill(" ".join(text.split()), LINE, subsequent_indent="  ") for command, text in NOTES if command in measured)


def run_of(figures: Figures) -> str:
    """Return the sentence that says what was measured on what."""
    about, versions = figures.about, figures.about["versions"]
    names = ("aiokafka", "confluent-kafka", "kafka-python", "faststream")
    peers = ", ".join(f"{name} {versions[name]}" for name in names)
    tail = f" and PySpark {versions['pyspark']}" if any(group["command"].startswith("spark") for group in figures.groups) else ""
    return (
        f"Measured on {about['from'][:10]} at commit `{about['commit']}`, in one run on one machine: {about['machine']}, "
        f"Python {about['python']}, Kafka {versions['kafka']}, {peers}{tail}."
    )


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def headline(figures: Figures) -> str:
    """Return the row of the repository's README."""
    rate = _reading("", partitions=6)
    ours, aiokafka, confluent = list(rate.cells(figures, PEERS))[:3]
    (default,) = _reading("", _DEFAULT, partitions=6).cells(figures, ["confluent-kafka"])
    cells = [cell.replace(")", " us)") for cell in (ours, aiokafka, confluent)]
    return _line(
        "records/s of 100 B, 6 partitions (CPU each)",
        cells[0],
        cells[1],
        f"{cells[2]}, {default.split(' (')[0]} with default options",
    )


# --- pictures -------------------------------------------------------------------------------------------------------------------

_FAST: Final = (
    ("kafka_async getarrow", "kafka_async.arrow"),
    ("kafka_async getmany", "kafka_async.getmany"),
    ("kafka_async async for", "kafka_async.iterate"),
    ("Java", "java.perf"),
    ("confluent-kafka, no pause", "confluent.tuned"),
    ("confluent-kafka", "confluent.consume"),
    ("aiokafka getmany", "aiokafka.getmany"),
    ("aiokafka async for", "aiokafka.iterate"),
    ("kafka-python", "kafka_python.poll"),
)
_SOON: Final = tuple((name, client) for name, client in _GROUPS.items() if name != "Java")


def throughput(figures: Figures) -> str:
    """Return the picture of how fast a topic is read."""
    rows = _bars(figures, _FAST, "throughput", "records_per_s", millions, {"size": 100, "codec": "none", "partitions": 6})
    note = "Records of 100 B, 6 partitions, one broker, one process. Lines: slowest and fastest round."
    return svg.bars("Reading a topic: records a second", note, [("", rows)])


def latency(figures: Figures) -> str:
    """Return the picture of how soon a record arrives, and what that costs."""
    parts = (
        ("p50, ms", "p50_ms", fixed(2)),
        ("p99, ms", "p99_ms", fixed(2)),
        ("CPU, % of a core", "cpu_percent", fixed(1)),
    )
    groups = [(heading, _bars(figures, _SOON, "latency", metric, form, {})) for heading, metric, form in parts]
    return svg.bars("From produce to receive", "500 records/s of 100 B, 1 partition. Less is better.", groups)


def _bars(
    figures: Figures,
    clients: Sequence[tuple[str, str]],
    command: str,
    metric: str,
    form: Callable[[float], str],
    shape: Mapping[str, object],
) -> list[svg.Bar]:
    return [
        svg.Bar(
            label=name,
            value=statistics.median(values),
            low=min(values),
            high=max(values),
            text=form(statistics.median(values)),
            ours=client.startswith("kafka_async"),
        )
        for name, client in clients
        if (values := figures.values(command, metric, client, "", **shape))
    ]


# --- pages ----------------------------------------------------------------------------------------------------------------------


def between(text: str, name: str, content: str) -> str:
    """Return a page with what stands between two comments replaced. Raises ``ValueError`` if it has no such comments."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    head, found, rest = text.partition(begin)
    _, also, tail = rest.partition(end)
    if not (found and also):
        raise ValueError(f"the page has no part between {begin} and {end}")
    return f"{head}{begin}\n{content}\n{end}{tail}"


def outputs() -> dict[Path, str]:
    """Return every file that is made from what is kept, with its content."""
    figures, readme, front = Figures(**json.loads(KEPT.read_text())), HERE / "README.md", HERE.parent / "README.md"
    page, seen = readme.read_text(), json.loads(WATCHED.read_text())
    for name, content in (
        ("run", run_of(figures)),
        ("consumers", consumers(figures)),
        ("notes", notes(figures)),
        ("around", around(figures)),
        ("spark", spark(figures)),
    ):
        page = between(page, name, content)
    row = re.compile(r"^\| records/s of 100 B, .*$", re.MULTILINE)
    return {
        PICTURES / "throughput.svg": throughput(figures),
        PICTURES / "latency.svg": latency(figures),
        PICTURES / "lanes.svg": svg.lanes(lanes.timeline(json.loads(RUN.read_text()))),
        PICTURES / "top.svg": svg.terminal([(text, style) for text, style in seen["top"]], watched.WIDTH),
        PICTURES / "monitor.svg": svg.browser(seen["page"], CSS.read_text()),
        readme: page,
        front: row.sub(lambda _: headline(figures), front.read_text(), count=1),
    }


def main(arguments: Sequence[str]) -> None:
    """Write the pages and the pictures; with ``keep FOLDER``, from new numbers, and with ``watch`` from a new look at groups."""
    PICTURES.mkdir(exist_ok=True)
    if arguments[:1] == ["keep"]:
        KEPT.write_text(dump(gather(sorted(Path(arguments[1]).rglob("*.json")))))
    RUN.write_text(dump(lanes.recorded()))
    if not WATCHED.exists() or arguments[:1] == ["watch"]:  # not the same each time: brokers and members are chosen at random
        WATCHED.write_text(json.dumps(watched.recorded(), indent=1) + "\n")
    for path, content in outputs().items():
        path.write_text(content)


if __name__ == "__main__":
    main(sys.argv[1:])
