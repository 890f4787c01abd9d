"""What the errors of the hub's client mean: one sentence with the facts, one hint with the remedy.

Tells no token from a token without the licence from a missing repository, a mirror that is down from a proxy that
refuses from a certificate that does not fit. Never prints a token.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from localspec.catalog.endpoint import Endpoint, masked
from localspec.catalog.reference import HubFile, HubQuant
from localspec.errors import DownloadError

_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
_CERTIFICATES = "SSL_CERT_FILE"


def offline(reference: HubFile | HubQuant) -> DownloadError:
    """Offline by choice, and the file is not here."""
    return DownloadError(
        f"{reference} is not on this machine, and HF_HUB_OFFLINE forbids fetching it.",
        hint=f"Once, with a connection: HF_HUB_OFFLINE=0 localspec models pull {reference}",
    )


def explain(error: Exception, hub: Endpoint, reference: HubFile | HubQuant) -> DownloadError:
    """What `error` means for someone who wants `reference`."""
    found = _explained(error, hub, reference)
    return DownloadError(masked(str(found)), hint=masked(found.hint))


def _explained(error: Exception, hub: Endpoint, reference: HubFile | HubQuant) -> DownloadError:
    from huggingface_hub import errors

    revision = reference.revision or "main"
    if isinstance(error, errors.GatedRepoError):
        return _gated(hub, reference)
    if isinstance(error, errors.RepositoryNotFoundError):
        return _no_repository(hub, reference)
    if isinstance(error, errors.RevisionNotFoundError):
        return DownloadError(
            f"{hub.url}/{reference.repo} has no revision {revision!r}.",
            hint="Give a commit, branch or tag of that repository, or leave @revision out.",
        )
    if isinstance(error, errors.EntryNotFoundError):
        return DownloadError(
            f"{reference} does not exist: {hub.url}/{reference.repo} has no such file at {revision!r}.",
            hint=f"See {hub.url}/{reference.repo}/tree/{revision}, or write hf:{reference.repo}:QUANT.",
        )
    if isinstance(error, errors.HfHubHTTPError):
        return _refused(error.response.status_code, hub, reference)
    if isinstance(error, errors.HFValidationError):
        return DownloadError(
            f"{reference.repo!r} is not the name of a repository.", hint="Write hf:owner/repo/file.gguf."
        )
    return _unreachable(error, hub, reference)


def _gated(hub: Endpoint, reference: HubFile | HubQuant) -> DownloadError:
    page = f"{hub.url}/{reference.repo}"
    if hub.token is None:
        return DownloadError(
            f"{reference.repo} is gated: its licence has to be accepted, and no token is set.",
            hint=f"Accept it at {page}, then set HF_TOKEN to a token of your account (or run `hf auth login`).",
        )
    return DownloadError(
        f"{reference.repo} is gated, and the account of your token has not been given access.",
        hint=f"Accept the licence at {page} with that account; a fine-grained token also needs the right to read gated "
        "repositories.",
    )


def _no_repository(hub: Endpoint, reference: HubFile | HubQuant) -> DownloadError:
    if hub.token is None:
        return DownloadError(
            f"{hub.url} has no public repository {reference.repo}.",
            hint="Check the spelling; for a private repository set HF_TOKEN.",
        )
    return DownloadError(
        f"{hub.url} has no repository {reference.repo} that your token may see.",
        hint="Check the spelling, and that the token belongs to an account with access to it.",
    )


def _refused(status: int, hub: Endpoint, reference: HubFile | HubQuant) -> DownloadError:
    if status == 401 and hub.token is None:
        return _no_repository(hub, reference)  # what a hub says of private and of missing ones alike
    if status == 401:
        return DownloadError(
            f"{hub.url} does not accept your token.",
            hint="It may have expired: set HF_TOKEN to a new one, or unset it.",
        )
    if status == 403:
        return DownloadError(
            f"{hub.url} does not allow reading {reference}.", hint="Check the rights of your token (HF_TOKEN)."
        )
    if status == 429:
        return DownloadError(
            f"{hub.url} asks to slow down.", hint="Wait some minutes; with HF_TOKEN set the limits are wider."
        )
    return DownloadError(
        f"{hub.url} answers with status {status} for {reference}.",
        hint="Try again later; what had arrived is kept." + _mirror(hub),
    )


def _unreachable(error: Exception, hub: Endpoint, reference: HubFile | HubQuant) -> DownloadError:
    """Everything below HTTP: names, connections, proxies, certificates, silence."""
    chain = list(_chain(error))
    words = " ".join(f"{type(each).__name__} {each}" for each in chain)
    via = next((f"{name}={os.environ[name]}" for name in _proxy_names()), None)
    where = hub.url + (" (HF_ENDPOINT)" if hub.is_mirror else "")
    if "CERTIFICATE" in words.upper() or "SSLError" in words:
        return DownloadError(
            f"The certificate of {where} could not be verified.",
            hint=f"Behind a company proxy set {_CERTIFICATES} to its certificates, and HTTPS_PROXY to the proxy.",
        )
    if "ProxyError" in words:
        return DownloadError(
            f"The proxy does not let {where} through.",
            hint=f"Check {' and '.join(_proxy_names()) or 'HTTPS_PROXY'}; NO_PROXY lists what goes without it.",
        )
    if any("Timeout" in type(each).__name__ for each in chain):
        problem = f"{where} did not answer in time"
    elif isinstance(error, OSError) and "ends the file" in str(error):
        problem = f"{reference} broke off: {error}"
    else:
        problem = f"{where} cannot be reached ({_reason(chain)})"
    proxy = " Check the proxy variables too (HTTPS_PROXY, NO_PROXY)." if via else ""
    return DownloadError(
        f"{problem}.",
        hint=f"Check the connection; run the same again and it goes on where it stopped.{_mirror(hub)}{proxy}",
    )


def _mirror(hub: Endpoint) -> str:
    return f" HF_ENDPOINT names {hub.url}: check or unset it." if hub.is_mirror else ""


def _proxy_names() -> list[str]:
    return [name for upper in _PROXIES for name in (upper, upper.lower()) if os.environ.get(name)]


def _reason(chain: list[BaseException]) -> str:
    """The innermost message that says something."""
    return next((str(each) for each in reversed(chain) if str(each)), type(chain[0]).__name__)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
