"""What HTML that a notebook shows must be: whole, alone, and without a script."""

import re
from html.parser import HTMLParser

_VOID = {"col", "wbr", "br", "meta"}


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.tags, self.words = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)


class Page:
    """A page that was read: its tags, the text that one sees, its style.

    Args:
        text: The HTML.
    """

    def __init__(self, text):
        reader = _Reader()
        reader.feed(text)
        reader.close()
        assert not reader.open
        self.names = [tag for tag, _ in reader.tags]
        self.attributes = [attrs for _, attrs in reader.tags]
        self.text = "".join(reader.words)
        (self.style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)

    def check(self):
        """Checks that it acts on nothing around it, and asks no one for anything."""
        assert not {"script", "link", "iframe", "img", "object"} & set(self.names)
        keys = {key for attrs in self.attributes for key in attrs}
        assert not [key for key in keys if key.startswith("on") or key == "href"]
        assert "\n" not in self.style and "url(" not in self.style
        assert "@import" not in self.style
        plain = self.style.replace("@media(prefers-color-scheme:dark){", "")
        selectors = re.findall(r"([^{}]+)\{[^{}]*\}", plain)
        assert len(selectors) > 20
        for selector in (part for s in selectors for part in s.split(",")):
            assert ".exburn" in selector
        return self
