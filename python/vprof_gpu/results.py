"""Results of vprof. All memory is in bytes; ``document`` is the complete JSON (see ``vprof schema``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

GIB = 1 << 30

# A row of a table, by column. A float is a fraction, shown as a bar or in percent.
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Interval:
    """An estimate and its 95 % interval."""

    bytes: int
    low_bytes: int
    high_bytes: int

    @classmethod
    def read(cls, d: Mapping[str, int]) -> Interval:
        return cls(d["bytes"], d["low_bytes"], d["high_bytes"])

    def __str__(self) -> str:
        return f"{gib(self.bytes)} [{gib(self.low_bytes)}, {gib(self.high_bytes)}] GiB"


@dataclass(frozen=True, repr=False)
class Result:
    """A result. Notebooks show it as an HTML table, print() as text."""

    document: Mapping[str, Any]

    @property
    def warnings(self) -> Sequence[str]:
        """The warnings of the result."""
        return tuple(w["what"] for w in self.document.get("warnings", ()))

    def title(self) -> str:
        """Returns the line above the table."""
        raise NotImplementedError

    def rows(self) -> Sequence[Row]:
        """Returns the rows of the table."""
        raise NotImplementedError

    def records(self) -> Sequence[Row]:
        """Returns the rows of a data frame: memory in bytes, and three columns for an interval."""
        raise NotImplementedError

    def to_dataframe(self) -> pandas.DataFrame:
        """Returns a pandas.DataFrame with a row for each point, choice or check, with memory in bytes. Requires pandas.
        """
        import pandas

        return pandas.DataFrame([dict(r) for r in self.records()])

    def __repr__(self) -> str:
        n = len(self.rows())
        return f"<{type(self).__name__} {self.title()}: {n} row{'s' * (n != 1)}>"

    def __str__(self) -> str:
        return text(self.title(), self.warnings, self.rows())

    def _repr_html_(self) -> str:
        return table(self.title(), self.warnings, self.rows())


def columns(**intervals: Interval | None) -> dict[str, int | None]:
    """Returns the columns of intervals: NAME_bytes, NAME_low_bytes, NAME_high_bytes."""
    return {f"{name}_{part}": getattr(i, part) if i else None
            for name, i in intervals.items() for part in ("bytes", "low_bytes", "high_bytes")}


@dataclass(frozen=True)
class Point:
    """The estimate for a batch size on a GPU: allocated and reserved bytes of PyTorch, device bytes as the driver
    reports them, and the host memory of each machine (None if unknown).
    """

    batch: int
    gpu: str
    memory_bytes: int
    allocated: Interval
    reserved: Interval
    device: Interval
    host: Interval | None
    components: Mapping[str, int]
    peak_phase: str
    verdict: str
    unsafe: str | None = None  # why the batch is not safe, such as "over-share"

    @property
    def fits(self) -> bool:
        """Whether the step fits into the whole memory of the GPU."""
        return self.verdict == "fits"

    @property
    def safe(self) -> bool:
        """Whether the upper bound leaves the share of memory free that smoke and fit require."""
        return self.unsafe is None and self.verdict in ("fits", "tight")

    @property
    def judged(self) -> str:
        """The verdict in the words of the command line's tables."""
        if self.safe:
            return "safe" if self.verdict == "fits" else "safe, tight"
        return f"{self.verdict}, not safe" if self.verdict in ("fits", "tight") else self.verdict


@dataclass(frozen=True, repr=False)
class Plan(Result):
    """Estimates by batch size and GPU."""

    case: Mapping[str, Any]
    points: Sequence[Point]

    @classmethod
    def read(cls, d: Mapping[str, Any]) -> Plan:
        gpus = {b["name"]: b for b in d["devices"]}
        points = []
        for p in d["points"]:
            e, gpu = p["estimate"], gpus[p["device"]]
            points.append(Point(
                p["batch"], gpu["gpu"], gpu["memory_bytes"],
                Interval.read(e["allocated"]), Interval.read(e["reserved"]), Interval.read(e["device"]),
                Interval.read(e["host"]) if "host" in e else None,
                {c["name"]: c["bytes"] for c in e["components"]}, e["peak_phase"], e["verdict"],
                e.get("unsafe"),
            ))
        return cls(d, d["case"], tuple(points))

    def title(self) -> str:
        return str(self.case["model"])

    def records(self) -> Sequence[Row]:
        return [{
            "gpu": p.gpu, "batch": p.batch, "memory_bytes": p.memory_bytes,
            **columns(allocated=p.allocated, reserved=p.reserved, device=p.device, host=p.host),
            **{f"{name.replace(' ', '_')}_bytes": n for name, n in p.components.items()},
            "peak_phase": p.peak_phase, "verdict": p.verdict, "safe": p.safe,
        } for p in self.points]

    def rows(self) -> Sequence[Row]:
        return [{
            "gpu": p.gpu, "batch": p.batch, "allocated GiB": gib(p.allocated.bytes),
            "reserved GiB": gib(p.reserved.bytes), "device": p.device,
            "share of the GPU": p.device.bytes / p.memory_bytes,
            "verdict": p.judged,
        } for p in self.points]


@dataclass(frozen=True)
class Choice:
    """A configuration on a GPU with its largest safe batch; 0 if no batch is safe."""

    gpu: str
    case: Mapping[str, Any]
    largest_batch: int
    recommended: bool
    device: Interval | None
    samples_per_second: float | None


@dataclass(frozen=True, repr=False)
class Fit(Result):
    """The configurations that were compared, the best first."""

    model: str
    choices: Sequence[Choice]

    @classmethod
    def read(cls, d: Mapping[str, Any]) -> Fit:
        gpus = {b["name"]: b["gpu"] for b in d["devices"]}
        return cls(d, d["model"], tuple(Choice(
            gpus[c["device"]], c["case"], c.get("largest_batch", 0), c.get("recommended", False),
            Interval.read(c["estimate"]["device"]) if c.get("estimate") else None, c.get("samples_per_second"),
        ) for c in d["choices"]))

    @property
    def best(self) -> Choice | None:
        """The recommended configuration of the fastest GPU; None if nothing is safe, even at batch 1."""
        return max((c for c in self.choices if c.recommended), key=lambda c: c.samples_per_second or 0, default=None)

    def title(self) -> str:
        return self.model

    def records(self) -> Sequence[Row]:
        return [{
            "gpu": c.gpu, **{k: v for k, v in c.case.items() if not isinstance(v, (Mapping, list))},
            "largest_batch": c.largest_batch, "recommended": c.recommended, **columns(device=c.device),
            "samples_per_second": c.samples_per_second,
        } for c in self.choices]

    def rows(self) -> Sequence[Row]:
        return [{
            "gpu": c.gpu, "stage": c.case.get("stage", ""), "autocast": c.case.get("amp", ""),
            "checkpointing": "yes" if c.case.get("checkpointing") else "no",
            "largest batch": c.largest_batch or "none", "needs": c.device or "-",
            "": "recommended" if c.recommended else "",
        } for c in self.choices]


@dataclass(frozen=True)
class Check:
    """A point of training: its memory, and whether it is safe."""

    name: str
    need_bytes: int
    safe: bool
    note: str


@dataclass(frozen=True, repr=False)
class Smoke(Result):
    """Whether a configuration is safe at every point of training."""

    safe: bool
    batch: int
    limit_bytes: int
    checks: Sequence[Check]

    @property
    def largest_batch(self) -> int:
        """The largest batch that is safe where this one is not; 0 if none is."""
        return int(self.document.get("largest_batch", 0))

    @classmethod
    def read(cls, d: Mapping[str, Any]) -> Smoke:
        checks = tuple(Check(c["name"], c["need_bytes"], c["safe"], c.get("note", "")) for c in d["checks"])
        return cls(d, d["safe"], d["batch"], d["limit_bytes"], checks)

    def title(self) -> str:
        if self.safe:
            return f"batch {self.batch}: safe"
        largest = self.largest_batch
        return f"batch {self.batch}: not safe; " + (f"the largest safe batch is {largest}" if largest else "none is")

    def records(self) -> Sequence[Row]:
        return [{"check": c.name, "need_bytes": c.need_bytes, "limit_bytes": self.limit_bytes, "safe": c.safe,
                 "note": c.note} for c in self.checks]

    def rows(self) -> Sequence[Row]:
        return [{
            "check": c.name, "needs GiB": gib(c.need_bytes),
            "share of what may be filled": c.need_bytes / self.limit_bytes,
            "verdict": "safe" if c.safe else "not safe", "": c.note,
        } for c in self.checks]


@dataclass(frozen=True, repr=False)
class Run(Result):
    """Peak memory of a script on a simulated GPU, as its PyTorch reported it over the whole run."""

    command: Sequence[str]
    gpu: str
    memory_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    device_bytes: int
    fits: bool
    exit_code: int

    @classmethod
    def read(cls, d: Mapping[str, Any]) -> Run:
        script, peak, gpu = d["script"], d["points"][0]["run"], d["devices"][0]
        return cls(
            d, script["command"], gpu["gpu"], gpu["memory_bytes"], peak["allocated_bytes"], peak["reserved_bytes"],
            peak["device_bytes"], peak["fits"], script.get("exit_code", 0),
        )

    def title(self) -> str:
        return "simulated"

    def records(self) -> Sequence[Row]:
        return [{
            "gpu": self.gpu, "memory_bytes": self.memory_bytes, "allocated_bytes": self.allocated_bytes,
            "reserved_bytes": self.reserved_bytes, "device_bytes": self.device_bytes, "fits": self.fits,
        }]

    def rows(self) -> Sequence[Row]:
        return [{
            "gpu": self.gpu, "allocated GiB": gib(self.allocated_bytes), "reserved GiB": gib(self.reserved_bytes),
            "device GiB": gib(self.device_bytes), "share of the GPU": self.device_bytes / self.memory_bytes,
            "verdict": "fits" if self.fits else "does not fit",
        }]


def text(title: str, notes: Sequence[str], rows: Sequence[Row]) -> str:
    """Returns a table as aligned text."""
    cells = [list(row) for row in rows[:1]] + [
        [f"{c:.0%}" if isinstance(c, float) else str(c) for c in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in cells]
    return "\n".join([title, *lines, *notes])


def gib(n: int) -> str:
    return f"{n / GIB:.2f}"


def bar(share: float) -> str:
    filled = f"width:{min(share, 1):.0%};background:{'#c62828' if share > 1 else '#2e7d32'}"
    return f'<div style="width:10em;border:1px solid #999"><div style="{filled}">&nbsp;</div></div>{share:.0%}'


def table(title: str, notes: Sequence[str], rows: Sequence[Row]) -> str:
    """Returns an HTML table whose columns are the keys of the rows. Fractions are shown as bars."""

    def line(tag: str, cells: Iterable[Any]) -> str:
        shown = (bar(c) if isinstance(c, float) else escape(str(c)) for c in cells)
        return "<tr>" + "".join(f"<{tag}>{c}</{tag}>" for c in shown) + "</tr>"

    lines = [line("th", row) for row in rows[:1]] + [line("td", row.values()) for row in rows]
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<p><b>{escape(title)}</b></p><table>{''.join(lines)}</table>{below}"
