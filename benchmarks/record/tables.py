"""Tables in Markdown: a run, and a run beside a stored one."""

from collections.abc import Sequence

from benchmarks.record.comparison import Change
from benchmarks.record.stored import Record

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def describe_record(record: Record) -> str:
    """The table of a run: CPU time a unit, and how many times as fast as the peer we are."""
    rows = [
        (name, line.name, line.peer, _time(line.ours, line.unit), _time(line.theirs, line.unit), f"{line.ratio:.2f}",
         f"{min(line.ratios):.2f} to {max(line.ratios):.2f}")
        for name, line in record.lines()
    ]  # fmt: skip
    heads = ("benchmark", "task", "peer", "ours, CPU time", "peer's", "peer's / ours", "in the turns")
    costs = [
        (name, f"{one.cost.seconds:.0f}", f"{one.cost.cpu_seconds:.0f}", f"{one.cost.peak_mb:.0f}")
        for name, one in record.benchmarks.items()
        if one.cost.seconds
    ]
    parts = [
        f"Run of {record.started}, size {record.size}" + ("" if record.complete else ", incomplete"),
        "; ".join(f"{name} {what}" for name, what in {**record.machine, **record.versions}.items()),
        table(heads, rows),
        table(("benchmark", "seconds", "CPU seconds", "peak MB"), costs),
        *_not_measured(record),
    ]
    return "\n\n".join(parts)


def _not_measured(record: Record) -> list[str]:
    """One paragraph, where something was skipped or failed."""
    words = []
    for name, one in record.benchmarks.items():
        words += [f"- {name}, {line.name}: skipped, {line.why}" for line in one.skipped]
        words += [f"- {name}: failed, {one.failed}"] if one.failed else []
    return ["\n".join(["Not measured:", "", *words])] if words else []


def describe_comparison(changes: Sequence[Change], old: Record, new: Record) -> str:
    """Old and new ratios, those that fell marked, and what in machine and versions is another."""
    rows = [
        (
            one.benchmark,
            one.name,
            one.peer,
            "" if one.old is None else f"{one.old:.2f}",
            "" if one.new is None else f"{one.new:.2f}",
            "" if one.share is None else f"{one.share:.2f}",
            _remark(one),
        )
        for one in changes
    ]
    heads = ("benchmark", "task", "peer", "stored peer's / ours", "now", "now / stored", "")
    before, after = {**old.machine, **old.versions}, {**new.machine, **new.versions}
    other = [
        f"{name}: {before.get(name, 'none')} in the stored run of {old.started}, {after.get(name, 'none')} now"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]
    return "\n\n".join([table(heads, rows), *other])


def _remark(one: Change) -> str:
    if one.old is None:
        return "not stored"
    return "not measured" if one.new is None else f"below {one.floor}" if one.fell else ""


def _time(seconds: float, unit: str) -> str:
    scale, name = next((one for one in UNITS if seconds >= one[0]), UNITS[-1])
    return f"{seconds / scale:.3g} {name} / {unit}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
