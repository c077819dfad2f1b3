"""Completion scripts, read by real shells."""

import shutil
import subprocess

import pytest

from costate.cli import main
from costate.cli.shells import Command, Flag, Values, script

GRAMMAR = {
    "train": Command(
        "Train what isn't trained.",
        (
            Flag("--preset", "Variant: it's a word.", Values(("gru", "nc-gru", "nc-ctrnn"))),
            Flag("--out", "Folder.", Values(paths=True)),
            Flag("--seed", "A number.", Values()),
            Flag("--overwrite", "Delete.", None),
        ),
        Values(("WalkerStand", "WalkerRun", "LQR")),
    ),
    "evaluate": Command("Play.", (Flag("--episodes", "How many.", Values()),), Values(paths=True)),
}


def bash(text: str, folder, *lines: list[str]) -> list[list[str]]:
    """Return what bash offers for each line, whose last word is under the cursor."""
    program = (
        'source /dev/stdin; try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _costate; '
        "printf '%s|' \"${COMPREPLY[@]}\"; echo; }\n"
    )
    program += "\n".join("try " + " ".join(f"'{word}'" for word in line) for line in lines)
    found = subprocess.run(
        ["bash", "--norc", "-c", program], input=text, capture_output=True, text=True, cwd=folder, check=True
    )
    assert found.stderr == ""
    return [[word for word in line.split("|") if word] for line in found.stdout.splitlines()]


def test_bash_completes_commands_settings_values_and_paths(tmp_path):
    (tmp_path / "runs of mine").mkdir()
    (tmp_path / "results").mkdir()
    found = bash(
        script("bash", GRAMMAR), tmp_path,
        ["costate", ""], ["costate", "ev"], ["costate", "train", "Walk"], ["costate", "train", "--o"],
        ["costate", "train", "--preset", "nc-"], ["costate", "train", "--preset", "=", "nc-g"],
        ["costate", "train", "--seed", ""], ["costate", "train", "--overwrite", "L"],
        ["costate", "evaluate", "r"], ["costate", "train", "--out", "runs"], ["costate", "nothing", ""],
    )  # fmt: skip
    assert found[0] == ["train", "evaluate", "--help", "--version"]
    assert found[1:8] == [
        ["evaluate"], ["WalkerStand", "WalkerRun"], ["--out", "--overwrite"],
        ["nc-gru", "nc-ctrnn"], ["nc-gru"], [], ["LQR"],
    ]  # fmt: skip
    assert sorted(found[8]) == ["results", "runs of mine"]
    assert found[9:] == [["runs of mine"], []]


def test_bash_completes_the_real_command_line(capsys, tmp_path):
    assert main(["completion", "bash"]) == 0
    found = bash(
        capsys.readouterr().out, tmp_path,
        ["costate", "tr"], ["costate", "train", "WalkerS"], ["costate", "train", "--costate-co"],
        ["costate", "train", "--replay.c"], ["costate", "train", "--algorithm", ""],
        ["costate", "solve", "pend"], ["costate", "sweep", "figure"], ["costate", "evaluate", "--js"],
        ["costate", "completion", "f"], ["costate", "memory", "BallIn"], ["costate", "robustness", "--deb"],
    )  # fmt: skip
    assert found == [
        ["train"], ["WalkerStand"], ["--costate-coef"], ["--replay.capacity"], ["ppo", "sac"],
        ["pendulum"], ["figure2", "figure3"], ["--json"], ["fish"], ["BallInCup"], ["--debug"],
    ]  # fmt: skip


def shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed here")
    return found


def test_fish_completes_commands_settings_and_values(tmp_path):
    (tmp_path / "c.fish").write_text(script("fish", GRAMMAR))
    (tmp_path / "results").mkdir()

    def offered(line: str) -> list[str]:
        program = f"source c.fish; complete -C '{line}'"
        result = subprocess.run(
            [shell("fish"), "--no-config", "-c", program],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=True,
        )
        return [row.split("\t")[0] for row in result.stdout.splitlines()]

    assert offered("costate ev") == ["evaluate"]
    assert offered("costate train --pre") == ["--preset"]
    assert sorted(offered("costate train --preset nc-")) == ["nc-ctrnn", "nc-gru"]
    assert sorted(offered("costate train Walk")) == ["WalkerRun", "WalkerStand"]
    assert offered("costate evaluate res") == ["results/"]
    assert offered("costate train --seed ") == []


def test_zsh_offers_settings_and_values(tmp_path):
    """Two builtins that exist only while a user types are replaced by ones that print."""
    (tmp_path / "c.zsh").write_text(script("zsh", GRAMMAR))
    program = (
        "compdef() { }; compadd() { shift; print -r -- $@ }; _files() { print files }; _describe() { print "
        "-r -- ${(P)2} }; source ./c.zsh; try() { words=($@); CURRENT=$#; PREFIX=$@[-1]; _costate }; try "
        "costate t; try costate train -; try costate train --preset n; try costate train W; try costate "
        "evaluate r"
    )
    result = subprocess.run(
        [shell("zsh"), "-f", "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert result.stdout.splitlines() == [
        "train:Train what isn't trained. evaluate:Play.",
        "--preset --out --seed --overwrite",
        "gru nc-gru nc-ctrnn",
        "WalkerStand WalkerRun LQR",
        "files",
    ]


def test_tcsh_reads_its_script(tmp_path):
    (tmp_path / "c.tcsh").write_text(script("tcsh", GRAMMAR))
    result = subprocess.run(
        [shell("tcsh"), "-f", "-c", "source c.tcsh; complete"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert "'p/1/(train evaluate)/'" in result.stdout
    assert "'n/--preset/(gru nc-gru nc-ctrnn)/'" in result.stdout
