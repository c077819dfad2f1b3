"""Files are replaced whole, folders are never lost, and nothing is written through a symbolic link."""

import os
import pathlib

import pytest

from costate._base.errors import StorageError
from costate._base.files import (
    check_of_costate,
    check_replaceable,
    open_to_append,
    output_file,
    output_folder,
    remove_file,
    replace_file,
    try_lock,
    write_atomically,
)


@pytest.fixture
def thesis(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder of the user's, with a file in it."""
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    return folder


def test_a_file_never_replaces_a_folder(thesis: pathlib.Path) -> None:
    with pytest.raises(
        StorageError, match=r"Nothing was written to .*thesis: it is a folder, .* Choose another name"
    ):
        write_atomically(thesis, b"policy")
    assert (thesis / "thesis.tex").read_text() == "years of work"
    assert list(thesis.parent.iterdir()) == [thesis]


def test_a_folder_that_appears_while_a_file_is_written_stays(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "film.mp4"

    def write(temporary: pathlib.Path) -> None:
        temporary.write_text("film")
        out.mkdir()
        (out / "thesis.tex").touch()

    with pytest.raises(StorageError, match="it is a folder"):
        replace_file(out, write)
    assert [path.name for path in tmp_path.rglob("*")] == ["film.mp4", "thesis.tex"]


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_has_the_temporary_name_of_a_file_is_somebody_elses(thesis: pathlib.Path, kind: str) -> None:
    out = thesis.parent / "policy.onnx"
    taken = out.with_name(".policy.onnx.partial")
    if kind == "folder":
        thesis.rename(taken)
    elif kind == "file":
        taken.write_text("years of work")
    else:
        taken.symlink_to(thesis / "thesis.tex")
    write_atomically(out, b"policy")
    assert out.read_bytes() == b"policy"
    assert (taken / "thesis.tex" if kind == "folder" else taken).read_text() == "years of work"
    assert not out.with_name(".policy.onnx.partial-2").exists()


def test_a_file_of_a_usual_name_is_replaced_only_where_costate_wrote_it(tmp_path: pathlib.Path) -> None:
    """README.md and index.html are names that others use too."""
    readme = tmp_path / "README.md"
    check_of_costate(readme, "a mark")
    readme.write_text("# A run\n\nHere is a mark of costate.")
    check_of_costate(readme, "a mark")
    # No text at all, as a picture would be.
    for strange in (b"years of work", b"\xff\xfe\x00"):
        readme.write_bytes(strange)
        with pytest.raises(StorageError, match=r"README\.md: costate did not write the file .* Move it away"):
            check_of_costate(readme, "a mark")
        assert readme.read_bytes() == strange
    with pytest.raises(StorageError, match="it is a folder"):
        check_of_costate(tmp_path, "a mark")


def test_a_file_is_not_written_through_a_link(thesis: pathlib.Path) -> None:
    link = thesis.parent / "policy.onnx"
    link.symlink_to(thesis / "thesis.tex")
    with pytest.raises(
        StorageError, match=r"policy\.onnx: it is a symbolic link to .*thesis\.tex, .* Remove the link"
    ):
        write_atomically(link, b"policy")
    with pytest.raises(StorageError, match="it is a symbolic link"):
        open_to_append(link)
    assert link.is_symlink()
    assert (thesis / "thesis.tex").read_text() == "years of work"


def test_a_device_or_a_pipe_is_not_replaced(tmp_path: pathlib.Path) -> None:
    """As root, a rename would replace /dev/null by a file."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", pathlib.Path("/dev/null")):
        with pytest.raises(StorageError, match="only a plain file is replaced"):
            check_replaceable(path)
    with pytest.raises(StorageError, match=r"only a plain file is replaced|not a plain file"):
        open_to_append(tmp_path / "pipe")


def test_where_a_command_writes_when_it_is_given_a_folder_or_a_file(
    thesis: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = thesis.parent
    assert output_file(thesis, "policy.onnx") == thesis / "policy.onnx"
    assert output_file(folder / "new.onnx", "policy.onnx") == folder / "new.onnx"
    monkeypatch.chdir(thesis)
    assert output_file(pathlib.Path(), "policy.onnx") == pathlib.Path("policy.onnx")
    (thesis / "policy.onnx").mkdir()
    with pytest.raises(StorageError, match=r"thesis/policy\.onnx: it is a folder"):
        output_file(thesis, "policy.onnx")


def test_a_file_in_the_place_of_a_folder_is_named(thesis: pathlib.Path) -> None:
    for path in (thesis / "thesis.tex", thesis / "thesis.tex" / "deep" / "er"):
        with pytest.raises(
            StorageError, match=r"cannot be written into: .*thesis\.tex is a file, but a folder is needed"
        ):
            output_folder(path)
    assert output_folder(thesis / "a" / "b").is_dir()


def test_only_files_are_removed_and_of_links_only_the_link(thesis: pathlib.Path) -> None:
    link = thesis.parent / "link"
    link.symlink_to(thesis)
    remove_file(link)
    remove_file(thesis / "nothing")
    with pytest.raises(StorageError, match=r"is a folder where a file of costate should be"):
        remove_file(thesis)
    assert (thesis / "thesis.tex").read_text() == "years of work"


def test_a_lock_is_not_taken_through_a_link(thesis: pathlib.Path) -> None:
    (thesis / "run.lock").symlink_to(thesis / "thesis.tex")
    with pytest.raises(StorageError, match=r"run\.lock: it is a symbolic link"):
        try_lock(thesis / "run.lock")
    (thesis / "other.lock").symlink_to(thesis / "nothing")
    with pytest.raises(StorageError, match=r"other\.lock: it is a symbolic link"):
        try_lock(thesis / "other.lock")
    assert not (thesis / "nothing").exists()
