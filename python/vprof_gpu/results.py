"""What vprof says, as values. All memory is in bytes; ``document`` is the whole JSON (see ``vprof schema``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

GIB = 1 << 30


@dataclass(frozen=True)
class Interval:
    """An estimate and the range that truth is in for 95 of 100 cases like it."""

    bytes: int
    low_bytes: int
    high_bytes: int

    @classmethod
    def read(cls, d: Mapping[str, int]) -> Interval:
        return cls(d["bytes"], d["low_bytes"], d["high_bytes"])

    def __str__(self) -> str:
        return f"{self.bytes / GIB:.2f} [{self.low_bytes / GIB:.2f}, {self.high_bytes / GIB:.2f}] GiB"


@dataclass(frozen=True)
class Point:
    """A batch size on a board: allocated and reserved as PyTorch counts them, device as the driver does."""

    batch: int
    gpu: str
    memory_bytes: int
    allocated: Interval
    reserved: Interval
    device: Interval
    components: Mapping[str, int]
    peak_phase: str
    verdict: str

    @property
    def fits(self) -> bool:
        return self.verdict == "fits"


@dataclass(frozen=True)
class Plan:
    """What each batch size needs on each board."""

    case: Mapping[str, Any]
    points: Sequence[Point]
    warnings: Sequence[str]
    document: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, d: Mapping[str, Any]) -> Plan:
        boards = {b["name"]: b for b in d["devices"]}
        points = []
        for p in d["points"]:
            e, board = p["estimate"], boards[p["device"]]
            points.append(Point(
                p["batch"], board["gpu"], board["memory_bytes"],
                Interval.read(e["allocated"]), Interval.read(e["reserved"]), Interval.read(e["device"]),
                {c["name"]: c["bytes"] for c in e["components"]}, e["peak_phase"], e["verdict"],
            ))
        return cls(d["case"], tuple(points), warnings_of(d), d)

    def _repr_html_(self) -> str:
        rows = [
            (p.gpu, p.batch, gib(p.allocated.bytes), gib(p.reserved.bytes), str(p.device),
             bar(p.device.bytes, p.memory_bytes), p.verdict)
            for p in self.points
        ]
        head = ("gpu", "batch", "allocated GiB", "reserved GiB", "device", "share of the board", "verdict")
        return table(self.case["model"], head, rows, self.warnings)


@dataclass(frozen=True)
class Choice:
    """A configuration on a board, with the largest batch that is safe; 0 if none is."""

    gpu: str
    case: Mapping[str, Any]
    largest_batch: int
    recommended: bool
    device: Interval | None
    samples_per_second: float | None


@dataclass(frozen=True)
class Fit:
    """The configurations that were tried, the best first."""

    model: str
    choices: Sequence[Choice]
    warnings: Sequence[str]
    document: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, d: Mapping[str, Any]) -> Fit:
        boards = {b["name"]: b["gpu"] for b in d["devices"]}
        choices = [
            Choice(
                boards[c["device"]], c["case"], c.get("largest_batch", 0), c.get("recommended", False),
                Interval.read(c["estimate"]["device"]) if c.get("estimate") else None, c.get("samples_per_second"),
            )
            for c in d["choices"]
        ]
        return cls(d["model"], tuple(choices), warnings_of(d), d)

    @property
    def best(self) -> Choice | None:
        """What vprof recommends; None if nothing fits."""
        return next((c for c in self.choices if c.recommended), None)

    def _repr_html_(self) -> str:
        rows = [
            (c.gpu, c.case.get("stage", ""), c.case.get("amp", ""), "yes" if c.case.get("checkpointing") else "no",
             c.largest_batch or "none", str(c.device or "-"), "recommended" if c.recommended else "")
            for c in self.choices
        ]
        head = ("gpu", "stage", "autocast", "checkpointing", "largest batch", "needs", "")
        return table(self.model, head, rows, self.warnings)


@dataclass(frozen=True)
class Check:
    """A moment of training: what it needs, and whether that is safe."""

    name: str
    need_bytes: int
    safe: bool
    note: str


@dataclass(frozen=True)
class Smoke:
    """Whether a configuration is safe at every point of training."""

    safe: bool
    batch: int
    limit_bytes: int
    checks: Sequence[Check]
    warnings: Sequence[str]
    document: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, d: Mapping[str, Any]) -> Smoke:
        checks = tuple(Check(c["name"], c["need_bytes"], c["safe"], c.get("note", "")) for c in d["checks"])
        return cls(d["safe"], d["batch"], d["limit_bytes"], checks, warnings_of(d), d)

    def _repr_html_(self) -> str:
        rows = [
            (c.name, gib(c.need_bytes), bar(c.need_bytes, self.limit_bytes), "safe" if c.safe else "not safe", c.note)
            for c in self.checks
        ]
        title = f"batch {self.batch}: " + ("safe" if self.safe else "not safe")
        return table(title, ("check", "needs GiB", "share of what may be filled", "verdict", ""), rows, self.warnings)


@dataclass(frozen=True)
class Run:
    """What a script needed on a simulated GPU: the largest counts of the whole run, as its PyTorch had them."""

    command: Sequence[str]
    gpu: str
    memory_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    device_bytes: int
    fits: bool
    exit_code: int
    document: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, d: Mapping[str, Any]) -> Run:
        script, peak, board = d["script"], d["points"][0]["run"], d["devices"][0]
        return cls(
            script["command"], board["gpu"], board["memory_bytes"], peak["allocated_bytes"], peak["reserved_bytes"],
            peak["device_bytes"], peak["fits"], script.get("exit_code", 0), d,
        )

    def _repr_html_(self) -> str:
        row = (self.gpu, gib(self.allocated_bytes), gib(self.reserved_bytes), gib(self.device_bytes),
               bar(self.device_bytes, self.memory_bytes), "fits" if self.fits else "does not fit")
        head = ("gpu", "allocated GiB", "reserved GiB", "device GiB", "share of the board", "verdict")
        return table("simulated", head, [row], ())


def warnings_of(d: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(w["what"] for w in d.get("warnings", ()))


def gib(n: int) -> str:
    return f"{n / GIB:.2f}"


class Markup(str):
    """Text that is HTML already."""


def bar(part: int, whole: int) -> Markup:
    share = part / whole if whole else 0
    color = "#c62828" if share > 1 else "#2e7d32"
    return Markup(
        f'<div style="width:10em;border:1px solid #999"><div style="width:{min(share, 1):.0%};background:{color}">'
        f"&nbsp;</div></div>{share:.0%}"
    )


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]], notes: Sequence[str]) -> str:
    def cells(tag: str, row: Sequence[Any]) -> str:
        shown = (c if isinstance(c, Markup) else escape(str(c)) for c in row)
        return "<tr>" + "".join(f"<{tag}>{c}</{tag}>" for c in shown) + "</tr>"

    body = "".join(cells("td", row) for row in rows)
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<p><b>{escape(title)}</b></p><table>{cells('th', head)}{body}</table>{below}"
