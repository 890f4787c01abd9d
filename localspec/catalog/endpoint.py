"""Which hub is asked, as whom, and how long to wait for it: the environment as it is now, not as it was at import."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

DEFAULT_URL = "https://huggingface.co"
QUESTIONS, DOWNLOADS = "HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"
_TRUE = {"1", "ON", "YES", "TRUE"}


@dataclass(frozen=True)
class Endpoint:
    """A hub. `timeout_s` is for questions, `pause_s` for the longest silence while bytes come."""

    url: str
    token: str | None
    is_offline: bool
    timeout_s: float
    pause_s: float

    @property
    def is_mirror(self) -> bool:
        return self.url != DEFAULT_URL

    def __repr__(self) -> str:
        return f"Endpoint({masked(self.url)!r})"  # never the token


def masked(text: str) -> str:
    """`text` without the names and passwords that addresses may hold."""
    return re.sub(r"//[^/@\s]+@", "//***@", text)


def current() -> Endpoint:
    """The hub that the environment names."""
    _load_client()
    url = (os.environ.get("HF_ENDPOINT") or DEFAULT_URL).rstrip("/")
    return Endpoint(
        url=url,
        token=_token(url),
        is_offline=_is_true("HF_HUB_OFFLINE") or _is_true("TRANSFORMERS_OFFLINE"),
        timeout_s=_seconds(QUESTIONS),
        pause_s=_seconds(DOWNLOADS),
    )


def _load_client() -> None:
    """The client takes these for whole numbers when it is loaded and fails on others; here each use reads them."""
    odd = {name: os.environ.pop(name) for name in (QUESTIONS, DOWNLOADS) if not os.environ.get(name, "10").isdecimal()}
    try:
        from huggingface_hub import constants  # noqa: F401
    finally:
        os.environ.update(odd)


def _token(url: str) -> str | None:
    """The token to send: a stored one only to the hub it was made for, one in the environment also to a mirror."""
    named = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN")
    if named or url != DEFAULT_URL or _is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        return (named or "").strip() or None
    from huggingface_hub import get_token

    return get_token()


def _seconds(variable: str) -> float:
    try:
        return max(0.1, float(os.environ.get(variable) or 10))
    except ValueError:
        return 10.0


def _is_true(variable: str) -> bool:
    return os.environ.get(variable, "").upper() in _TRUE
