"""Makes a page of what a terminal shows: text with colors and lines that are drawn anew
becomes HTML, for a browser that takes a picture of it.

usage: terminal_page.py TITLE < typescript > page.html
"""

import html
import re
import sys

COLORS = {30: "#5c6370", 31: "#e06c75", 32: "#98c379", 33: "#e5c07b", 34: "#61afef", 35: "#c678dd",
          36: "#56b6c2", 37: "#d7dae0", 90: "#7f848e", 91: "#e06c75", 92: "#98c379", 93: "#e5c07b",
          94: "#61afef", 95: "#c678dd", 96: "#56b6c2", 97: "#ffffff"}
STYLE = ("body{margin:0;background:#282c34;color:#d7dae0;font:15px/1.35 'DejaVu Sans Mono',monospace}"
         "div{background:#21252b;color:#7f848e;padding:6px 14px}pre{margin:0;padding:12px 14px;font:inherit;white-space:pre-wrap}")
CODE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


def last_drawn(line):
    """What is left of a line that carriage returns have drawn several times."""
    return [part for part in line.split("\r") if part.strip()][-1:] or [""]


def styled(line):
    """A line as HTML; codes that are neither colors nor weights are left out."""
    parts, open_spans, at = [], 0, 0
    for code in CODE.finditer(line):
        parts.append(html.escape(line[at:code.start()]))
        at = code.end()
        if code[2] != "m":
            continue
        for number in (int(word or 0) for word in code[1].split(";")):
            if number in (0, 22, 39):
                parts.append("</span>" * open_spans)
                open_spans = 0
            elif number in COLORS or number in (1, 2):
                weight = {1: "font-weight:bold", 2: "opacity:.65"}
                parts.append(f'<span style="{weight.get(number) or "color:" + COLORS[number]}">')
                open_spans += 1
    return "".join(parts) + html.escape(line[at:]) + "</span>" * open_spans


def page(title, text):
    lines = [styled(last_drawn(line)[0]) for line in text.replace("\r\n", "\n").split("\n")]
    return (f'<!doctype html><meta charset="utf-8"><title>{html.escape(title)}</title><style>{STYLE}</style>'
            f"<div>{html.escape(title)}</div><pre>" + "\n".join(lines).rstrip() + "</pre>\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.stdout.write(page(sys.argv[1], sys.stdin.read()))
