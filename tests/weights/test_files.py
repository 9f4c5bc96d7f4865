"""Weights through a folder: a reader sees a whole version or none, whatever happens to the writer."""

from __future__ import annotations

import pytest
import torch

from turnwise.errors import DataError
from turnwise.model import load, reload
from turnwise.testing import tiny_model
from turnwise.weights import files


def test_what_is_published_loads_like_any_model_and_is_the_same(tmp_path):
    policy = tiny_model(seed=4)
    place = files.publish(policy.save, tmp_path, 3)
    read = load(str(place), device="cpu")
    other = tiny_model(seed=5)
    reload(other, place)
    for mine, theirs, copied in zip(
        policy.model.parameters(), read.model.parameters(), other.model.parameters(), strict=True
    ):
        assert torch.equal(mine, theirs) and torch.equal(mine, copied)


def test_the_newest_complete_version_is_received(tmp_path):
    for version in (3, 11, 7):
        files.publish(lambda folder: (folder / "w").write_text("x"), tmp_path, version, keep=3)
    assert files.receive(tmp_path) == (11, tmp_path / "version-000011")
    assert files.receive(tmp_path, 3) == (3, tmp_path / "version-000003")


def test_a_version_whose_writer_was_stopped_is_not_there(tmp_path):
    def stopped(folder):
        (folder / "w").write_text("half")
        raise KeyboardInterrupt

    files.publish(lambda folder: (folder / "w").write_text("x"), tmp_path, 1)
    with pytest.raises(KeyboardInterrupt):
        files.publish(stopped, tmp_path, 2)
    assert files.newest(tmp_path) == (1, tmp_path / "version-000001")


@pytest.mark.parametrize("harm", ["shorter", "missing", "no seal", "bad seal"])
def test_a_version_that_lost_something_is_not_received(tmp_path, harm):
    place = files.publish(lambda folder: (folder / "w").write_text("xxxx"), tmp_path, 1)
    if harm == "shorter":
        (place / "w").write_text("x")
    elif harm == "missing":
        (place / "w").unlink()
    elif harm == "no seal":
        (place / "complete.json").unlink()
    else:
        (place / "complete.json").write_text("{")
    with pytest.raises(DataError, match=r"found no complete version in .*; expected any version"):
        files.receive(tmp_path)


def test_old_versions_go_and_a_version_published_again_stays_as_it_is(tmp_path):
    for version in (1, 2, 3):
        files.publish(lambda folder: (folder / "w").write_text("x"), tmp_path, version, keep=2)
    files.publish(lambda folder: (folder / "w").write_text("yy"), tmp_path, 3)
    assert [v for v, _ in files.versions(tmp_path)] == [2, 3]
    assert (tmp_path / "version-000003" / "w").read_text() == "x"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["version-000002", "version-000003"]


def test_senseless_numbers_are_refused(tmp_path):
    for version, keep in ((-1, 1), (0, 0)):
        with pytest.raises(DataError, match="expected a version of at least 0"):
            files.publish(lambda folder: None, tmp_path, version, keep)
