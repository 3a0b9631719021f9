"""A page on which a model is tried by hand.

It is one file without anything from elsewhere, and knows nothing: it asks the routes
what there is, as every client does, and draws a field for each input. What the server
answers becomes text, never markup; the browser is told to run this one script alone.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import re

__all__ = ["read_page"]

_NEVER = ("default-src", "base-uri", "form-action", "frame-ancestors")


def read_page() -> tuple[bytes, dict[str, str]]:
    """The page, and the headers that it is sent with."""
    file = importlib.resources.files("exburn.serving.http") / "page.html"
    page = file.read_text("utf-8")
    policy = [f"{what} 'none'" for what in _NEVER]
    policy.append(f"script-src {_hash(page, 'script')}")
    policy.append(f"style-src {_hash(page, 'style')}")
    policy += ["connect-src 'self'", "img-src 'self' blob: data:"]
    headers = {
        "content-security-policy": "; ".join(policy),
        "content-type": "text/html; charset=utf-8",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    return page.encode(), headers


def _hash(page: str, tag: str) -> str:
    """What a policy calls the text of the page's one element of a kind."""
    (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
