"""The content of a page of `lately count --html` as JSON, read by the HTML parser of the standard library.

Usage: report_reader.py FILE. Fails when the page is not well nested, names anything that a browser would fetch or
run, uses an id twice, or has an SVG without a title and a description.
"""

import json
import re
import sys
from html.parser import HTMLParser

VOID = {"meta", "path", "rect", "br"}
TAGS = VOID | {
    "html", "head", "title", "style", "body", "main", "header", "h1", "h2", "h3", "p", "time", "dl", "dt", "dd", "div",
    "small", "section", "figure", "figcaption", "svg", "desc", "span", "i", "details", "summary", "table", "thead",
    "tbody", "tr", "th", "td", "caption", "bdi", "footer",
}
ATTRIBUTES = {
    "lang", "charset", "http-equiv", "content", "name", "datetime", "class", "title", "id", "viewbox", "style", "scope",
    "preserveaspectratio", "role", "aria-labelledby", "aria-hidden", "d", "x", "y", "width", "height",
}
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class Reader(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.stack, self.ids, self.labels, self.policies = [], {}, [], []
        self.tables, self.notes, self.charts = {}, [], []
        self.row = self.table = None
        self.style = ""

    def handle_starttag(self, tag, attributes):
        assert tag in TAGS, tag
        assert len(dict(attributes)) == len(attributes), attributes
        assert not {name for name, _ in attributes} - ATTRIBUTES, attributes
        attributes = dict(attributes)
        if "id" in attributes:
            assert attributes["id"] not in self.ids, attributes["id"]
            self.ids[attributes["id"]] = ""
        if attributes.get("http-equiv") == "Content-Security-Policy":
            assert not self.stack or self.stack[-1][0] == "head"
            self.policies.append(attributes["content"])
        if tag == "svg":
            assert attributes["role"] == "img"
            self.labels.append(attributes["aria-labelledby"].split())
            self.charts.append("")
        if tag == "path" and attributes["class"] == "hits":
            self.charts[-1] = attributes["d"]
        if tag == "table":
            self.table = self.tables.setdefault(attributes["id"], [])
        if tag == "tr":
            self.row = []
        if tag in ("td", "th") and self.row is not None:
            self.row.append({"text": ""})
        if tag == "time":
            self.note("time", attributes["datetime"])
        if tag == "bdi" and "title" in attributes:
            self.note("full", attributes["title"])
        if tag not in VOID:
            self.stack.append((tag, attributes.get("id"), attributes.get("class")))

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        assert self.stack and self.stack[-1][0] == tag, (tag, self.stack)
        self.stack.pop()
        if tag == "tr":
            self.table.append(self.row)
            self.row = None

    def handle_data(self, data):
        tags = [tag for tag, _, _ in self.stack]
        if "style" in tags:
            self.style += data
            return
        for tag, name, kind in self.stack:
            if name:
                self.ids[name] += data
        if self.stack and self.stack[-1][2] == "note":
            self.notes.append(data)
        if self.row and ("td" in tags or "th" in tags):
            self.row[-1]["text"] += data

    def note(self, name, value):
        if self.row:
            self.row[-1][name] = value


def main():
    page = open(sys.argv[1], encoding="utf-8", newline="").read()
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert not reader.stack, reader.stack
    assert reader.policies == [POLICY], reader.policies
    assert not re.search(r"url\(|@import|expression", reader.style)
    assert "prefers-color-scheme:dark" in reader.style and "@media print" in reader.style
    for labels in reader.labels:
        assert len(labels) == 2 and all(reader.ids[label].strip() for label in labels), labels
    # Nothing but blanks and what can be seen.
    assert not re.search(r"[^\n -~\u00a0-\U0010ffff]|[\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]", page)
    print(json.dumps({"ids": reader.ids, "tables": reader.tables, "notes": reader.notes, "charts": reader.charts}))


main()
