"""Compare every pinned dependency with a folder of security advisories, offline, and record what was checked.

The advisories are OSV records (https://ossf.github.io/osv-schema), as YAML or JSON: a clone of
pypa/advisory-database, of github/advisory-database, or any folder of such files. The record holds identifiers
and versions only, never an advisory's text.

    python tools/audit.py ADVISORIES

The exit code is 0 if no pin is affected, or if all affected ones are accepted with a reason; 1 if a pin is
affected; 2 if something could not be read.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import yaml
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD_SUFFIXES = (".json", ".yaml", ".yml")
# Folders of records in the two public databases. Other files in their clones (workflows, notes) are not
# records.
RECORD_FOLDERS = ("vulns", "advisories")
# Loads every scalar as text: 3.10 must not become the number 3.1. It constructs only lists, mappings and
# strings.
TextLoader: type = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
# Forms of an absent value with this loader.
NOTHING: tuple[object, ...] = (None, "", "~", "null")


class AuditError(Exception):
    """Input that cannot be audited.

    Its text is one paragraph: the problem, the value received, what is allowed, and what to do.
    """


@dataclass(frozen=True)
class Event:
    """One end of an interval of affected versions."""

    kind: str
    version: str


@dataclass(frozen=True)
class Affected:
    """The affected versions of one package: single ones, and intervals."""

    name: str
    versions: tuple[str, ...]
    ranges: tuple[tuple[Event, ...], ...]


@dataclass(frozen=True)
class Advisory:
    """The parts of an OSV record that the audit needs."""

    identifier: str
    aliases: tuple[str, ...]
    newest: str
    withdrawn: bool
    affected: tuple[Affected, ...]


@dataclass(frozen=True)
class Finding:
    """An affected pin, the versions that fix it, and the reason why it is accepted, if it is."""

    name: str
    version: str
    identifier: str
    aliases: tuple[str, ...]
    fixed_in: tuple[str, ...]
    accepted: str | None


# Pins


def read_pins(path: pathlib.Path) -> dict[str, Version]:
    """Read names (normalised as in PEP 503) and exact versions from ``name==version`` lines and comments."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise AuditError(
            f"The pins cannot be read from {path}: {reason_of(error)}. Give a text file of name==version "
            "lines with --pins."
        ) from error
    pins: dict[str, Version] = {}
    for number, line in enumerate(lines, start=1):
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        if text:
            name, version = read_pin(text, f"line {number} of {path}")
            if pins.setdefault(name, version) != version:
                raise AuditError(
                    f"{path} pins {name} twice, to {pins[name]} and in line {number} to {version}. Only one "
                    "version is allowed; remove a line."
                )
    if not pins:
        raise AuditError(
            f"{path} contains no pins. It must have lines of the form name==version; write the output of pip "
            "freeze into it."
        )
    return pins


def read_pin(text: str, place: str) -> tuple[str, Version]:
    """Parse the name and the version of one exact pin."""
    try:
        requirement = Requirement(text)
        (specifier,) = requirement.specifier
        if specifier.operator in ("==", "===") and requirement.url is None:
            return canonicalize_name(requirement.name), Version(specifier.version)
    except (InvalidRequirement, InvalidVersion, ValueError):
        pass
    raise AuditError(
        f"{text!r} ({place}) is not an exact pin, but an audit needs the version. Write name==version with "
        "the installed version."
    )


# Advisories


def record_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return all files below a folder that must be records."""
    if not folder.is_dir():
        raise AuditError(
            f"The database of advisories must be a folder; {folder} is "
            f"{'a file' if folder.exists() else 'not there'}. Clone "
            "https://github.com/pypa/advisory-database and give the clone's folder."
        )
    roots = [folder / name for name in RECORD_FOLDERS if (folder / name).is_dir()] or [folder]
    files = sorted(
        path
        for root in roots
        for path in root.rglob("*")
        if path.suffix in RECORD_SUFFIXES and path.is_file()
    )
    if not files:
        raise AuditError(
            f"There are no advisories in {folder}: no file there ends with {', '.join(RECORD_SUFFIXES)}. "
            "Clone https://github.com/pypa/advisory-database and give the clone's folder."
        )
    return files


def read_advisory(path: pathlib.Path) -> Advisory:
    """Read one record. Entries that the audit does not need are ignored."""
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else yaml.load(text, Loader=TextLoader)
        return parse_advisory(content)
    except (OSError, UnicodeDecodeError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise AuditError(
            f"The advisory {path} cannot be read: {reason_of(error)}. It must be one OSV record, as YAML or "
            "JSON. Restore the file (git checkout), or remove it if it is not an advisory."
        ) from error


def parse_advisory(content: object) -> Advisory:
    """Parse a record from the output of a YAML or JSON reader; raise ``ValueError`` if it is not one."""
    record = mapping(content, "the record")
    if "affects" in record and "affected" not in record:
        raise ValueError("it has 'affects', the form that OSV had before version 1.0, instead of 'affected'")
    dates = [string(record[key], key)[:10] for key in ("modified", "published") if key in record]
    if not dates:
        raise ValueError("it has neither 'modified' nor 'published'")
    entries = [
        mapping(entry, "an entry of 'affected'") for entry in sequence(record.get("affected"), "affected")
    ]
    return Advisory(
        identifier=string(record.get("id"), "id"),
        aliases=tuple(string(alias, "an alias") for alias in sequence(record.get("aliases"), "aliases")),
        newest=max(datetime.date.fromisoformat(date) for date in dates).isoformat(),
        withdrawn=record.get("withdrawn") not in NOTHING,
        affected=tuple(parse_affected(entry) for entry in entries if of_python(entry)),
    )


def of_python(entry: Mapping[str, object]) -> bool:
    """Return True if an entry of ``affected`` is about a Python package.

    A suffix such as ``PyPI:index`` names another index of the same packages.
    """
    package = mapping(entry.get("package", {}), "package")
    return string(package.get("ecosystem", ""), "ecosystem").split(":")[0] == "PyPI"


def parse_affected(entry: Mapping[str, object]) -> Affected:
    """Parse one package of a record. Ranges of commits are skipped, since they say nothing about versions."""
    ranges = [mapping(one, "a range") for one in sequence(entry.get("ranges"), "ranges")]
    return Affected(
        name=canonicalize_name(
            string(mapping(entry["package"], "package").get("name"), "the package's name")
        ),
        versions=tuple(
            string(version, "a version") for version in sequence(entry.get("versions"), "versions")
        ),
        ranges=tuple(tuple(parse_events(one)) for one in ranges if one.get("type") == "ECOSYSTEM"),
    )


def parse_events(one: Mapping[str, object]) -> Iterator[Event]:
    """Yield the ends of a range's intervals.

    An unknown end (some are empty) is skipped. Its interval stays open, which is the safe side.
    """
    for event in sequence(one.get("events"), "events"):
        for kind, version in mapping(event, "an event").items():
            if kind in ("introduced", "fixed", "last_affected"):
                yield Event(kind, string(version, kind))


def mapping(value: object, what: str) -> Mapping[str, object]:
    """Return a mapping, or raise ``ValueError`` with what it should have been."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be a mapping and is {value!r:.80}")
    return value


def sequence(value: object, what: str) -> Sequence[object]:
    """Return a list; an absent one is empty."""
    if value in NOTHING:
        return ()
    if not isinstance(value, list):
        raise ValueError(f"{what} must be a list and is {value!r:.80}")
    return value


def string(value: object, what: str) -> str:
    """Return a string, or raise ``ValueError`` with what it should have been."""
    if not isinstance(value, str):
        raise ValueError(f"{what} must be text and is {value!r:.80}")
    return value


# Comparison


def is_affected(version: Version, affected: Affected) -> bool:
    """Return True if a version is listed or lies in an interval."""
    return any(same_version(version, listed) for listed in affected.versions) or any(
        lies_within(version, events) for events in affected.ranges
    )


def same_version(version: Version, listed: str) -> bool:
    """Compare versions as in PEP 440.

    Old lists contain versions that are invalid there, which no pin can have.
    """
    with contextlib.suppress(InvalidVersion):
        return Version(listed) == version
    return False


def lies_within(version: Version, events: Iterable[Event]) -> bool:
    """Apply OSV's rule: of the ends in the order of their versions, the last one that is reached decides."""
    inside = False
    for event in sorted(events, key=event_order):
        end = event_version(event)
        if event.kind == "introduced":
            inside = inside or end is None or version >= end
        elif end is None or (version > end if event.kind == "last_affected" else version >= end):
            inside = False
    return inside


def event_order(event: Event) -> tuple[bool, Version, bool]:
    """Return the sort key of an end, from the lowest version upwards.

    An interval of one version ends after it has begun.
    """
    end = event_version(event)
    return end is not None, end or Version("0"), event.kind == "last_affected"


def event_version(event: Event) -> Version | None:
    """Return the version of an interval's end; None for "0", which in OSV comes before every version."""
    return None if event.version == "0" else Version(event.version)


def fixing_versions(version: Version, affected: Affected) -> tuple[str, ...]:
    """Return the versions above a pin that fix an advisory, lowest first, or "after" the last affected."""
    above = sorted(
        {
            (Version(event.version), event.kind)
            for events in affected.ranges
            for event in events
            if event.kind != "introduced"
        }
    )
    fixed = tuple(str(end) for end, kind in above if kind == "fixed" and end > version)
    return fixed or tuple(f"after {end}" for end, kind in above if kind == "last_affected" and end >= version)


def findings_for(
    pins: Mapping[str, Version], advisories: Iterable[Advisory], accepted: Mapping[str, str]
) -> list[Finding]:
    """Return every affected pin, ordered by name and identifier."""
    found = []
    for advisory in advisories:
        for affected in advisory.affected:
            version = pins.get(affected.name)
            if version is None or advisory.withdrawn:
                continue
            try:
                if is_affected(version, affected):
                    reason = next(
                        (
                            accepted[name]
                            for name in (advisory.identifier, *advisory.aliases)
                            if name in accepted
                        ),
                        None,
                    )
                    fixes = fixing_versions(version, affected)
                    found.append(
                        Finding(
                            affected.name, str(version), advisory.identifier, advisory.aliases, fixes, reason
                        )
                    )
            except InvalidVersion as error:
                raise AuditError(
                    f"The advisory {advisory.identifier} about {affected.name} cannot be compared with "
                    f"{version}: {error}. The ends of its ranges must be versions as in PEP 440. Get the "
                    "newest database. If the error persists, read the advisory and correct the file."
                ) from error
    return sorted(found, key=lambda finding: (finding.name, finding.identifier))


# Accepted advisories


def read_accepted(path: pathlib.Path) -> dict[str, str]:
    """Read the advisories that do not concern this library, with reasons; none if there is no such file."""
    if not path.exists():
        return {}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("accepted", {})
        accepted = {
            name: string(reason, f"the reason for {name}").strip()
            for name, reason in mapping(table, "accepted").items()
        }
        if empty := [name for name, reason in accepted.items() if not reason]:
            raise ValueError(f"the reason for {empty[0]} is empty")
    except (OSError, ValueError) as error:
        raise AuditError(
            f"The accepted advisories cannot be read from {path}: {reason_of(error)}. It must be a TOML file "
            "with "
            'a table [accepted] of identifiers and reasons, such as PYSEC-2024-1 = "only on Windows". '
            "Correct the file."
        ) from error
    return accepted


# Record and report


def audit_record(
    pins: Mapping[str, Version], advisories: Sequence[Advisory], findings: Sequence[Finding], source: str
) -> dict[str, object]:
    """Return what was checked and what was found, as plain data."""
    looked_at: dict[str, set[str]] = {name: set() for name in pins}
    for advisory in advisories:
        for affected in advisory.affected:
            if affected.name in looked_at and not advisory.withdrawn:
                looked_at[affected.name].add(advisory.identifier)
    return {
        "audited": datetime.date.today().isoformat(),
        "database": {
            "source": source,
            "newest": max(advisory.newest for advisory in advisories),
            "records": len(advisories),
            "withdrawn": sum(advisory.withdrawn for advisory in advisories),
        },
        "pins": {
            name: {"version": str(pins[name]), "looked_at": sorted(looked_at[name])} for name in sorted(pins)
        },
        "findings": [
            {
                "name": finding.name,
                "version": finding.version,
                "id": finding.identifier,
                "aliases": list(finding.aliases),
                "fixed_in": list(finding.fixed_in),
                "accepted": finding.accepted,
            }
            for finding in findings
        ],
    }


def write_record(path: pathlib.Path, record: Mapping[str, object]) -> None:
    """Replace a file by a record, or leave it as it was: it is written under another name and renamed."""
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(json.dumps(record, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise AuditError(
            f"The record cannot be written to {path}: {reason_of(error)}. Give a file in a writable folder "
            "with --out."
        ) from error


def report(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield a table of the affected pins, one per line."""
    rows = [("pin", "advisory", "aliases", "fixed in", "accepted")]
    for finding in findings:
        fixed = ", ".join(finding.fixed_in) or "no version known"
        rows.append(
            (
                f"{finding.name}=={finding.version}",
                finding.identifier,
                ", ".join(finding.aliases),
                fixed,
                finding.accepted or "no",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows if findings else []:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def reason_of(error: Exception) -> str:
    """Return the error in one line."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__


def audit(arguments: argparse.Namespace) -> int:
    """Run the audit, and return the exit code."""
    pins, accepted = read_pins(arguments.pins), read_accepted(arguments.accepted)
    advisories = [read_advisory(path) for path in record_files(arguments.database)]
    findings = findings_for(pins, advisories, accepted)
    record = audit_record(pins, advisories, findings, arguments.source or arguments.database.resolve().name)
    write_record(arguments.out, record)

    for line in report(findings):
        print(line)
    used = {name for finding in findings for name in (finding.identifier, *finding.aliases)}
    for name in sorted(set(accepted) - used):
        print(f"{name} is accepted in {arguments.accepted}, but affects no pin any more: remove it there")
    about_pins = {
        advisory.identifier
        for advisory in advisories
        if not advisory.withdrawn and any(one.name in pins for one in advisory.affected)
    }
    open_findings = [finding for finding in findings if finding.accepted is None]
    newest = max(advisory.newest for advisory in advisories)
    print(
        f"{len(pins)} pins, {len(advisories)} advisories (newest of {newest}), {len(about_pins)} of them "
        f"about pinned packages: {len(open_findings)} affected, {len(findings) - len(open_findings)} "
        f"accepted; recorded in {arguments.out}"
    )
    return 1 if open_findings else 0


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description="Compare every pinned dependency with OSV advisories, and record what was checked."
    )
    parser.add_argument(
        "database",
        type=pathlib.Path,
        metavar="ADVISORIES",
        help="a clone of pypa/advisory-database, or any folder of OSV records",
    )
    parser.add_argument(
        "--pins",
        type=pathlib.Path,
        default=ROOT / "constraints.txt",
        help="a file of name==version lines (the repository's constraints.txt)",
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=ROOT / "docs" / "audit.json",
        help="where the record is written (the repository's docs/audit.json)",
    )
    parser.add_argument(
        "--accepted",
        type=pathlib.Path,
        default=ROOT / "tools" / "accepted.toml",
        help="advisories that are accepted, with reasons (tools/accepted.toml)",
    )
    parser.add_argument("--source", help="where the advisories come from, for the record (the folder's name)")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Run the audit. Input that cannot be audited is explained in one paragraph."""
    try:
        return audit(parse_arguments(words))
    except AuditError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
