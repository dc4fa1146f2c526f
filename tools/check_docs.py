"""Checks the documents: relative links lead somewhere, README names the two commands, no
page shows a path of somebody's machine, and the files and functions that the walkthrough
names exist.

usage: check_docs.py ROOT
"""

import re
import sys
from pathlib import Path
from urllib.parse import unquote

import tree

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *#*$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
MACHINE_PATH = re.compile(r"(?<![\w.$}~])/(?:home/\w+|root|Users/\w+)/[^\s`]*")
COMMANDS = ("./scripts/demo.sh", "./scripts/test.sh")
WALKTHROUGH = Path("docs/walkthrough.md")
QUOTED = re.compile(r"`([^`]+)`")
SOURCE = re.compile(r"[\w.-]+(?:/[\w.-]+)+\.(?:h|cpp|cu|py|sh)")
FUNCTION = re.compile(r"(?:(?:\w+::)*(\w+)::)?(\w+)\(\)")
COMMENT = re.compile(r"//.*")


def anchors(page):
    """The names that a page's headings can be linked by, as code hosts make them."""
    headings = HEADING.findall(CODE.sub("", page.read_text()))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {text.strip().replace(" ", "-") for text in plain}


def check_link(root, path, link):
    """What is wrong with a link of the page `path`, or None."""
    if re.match(r"[a-z]+:", link):
        return None
    target, _, anchor = unquote(link).partition("#")
    page = root / path if not target else (root / path).parent / target
    if not page.exists():
        return f"links to {link}, which does not exist"
    if anchor and page.suffix == ".md" and anchor not in anchors(page):
        return f"links to {link}, but that page has no such heading"
    return None


def sources(root):
    """The library and the programs as one text, without comments."""
    texts = [
        COMMENT.sub("", (root / path).read_text())
        for path in tree.files(root)
        if path.parts[0] in ("lockstep", "apps") and path.suffix in (".h", ".cpp", ".cu")
    ]
    return "\n".join(texts)


def check_walkthrough(root):
    """Files (`lockstep/train/step.cpp`) and functions (`Step::backward()`) that are not there."""
    code = sources(root)
    text = CODE.sub("", (root / WALKTHROUGH).read_text())
    for quoted in dict.fromkeys(QUOTED.findall(text)):
        if SOURCE.fullmatch(quoted) and not (root / quoted).is_file():
            yield f"{WALKTHROUGH}: names {quoted}, which does not exist"
        function = FUNCTION.fullmatch(quoted)
        if not function:
            continue
        owner, name = function.groups()
        if not re.search(rf"\b{name}\s*\(", code):
            yield f"{WALKTHROUGH}: names {quoted}, but there is no function {name}"
        elif owner and not re.search(rf"\b(?:class|struct|namespace)\s+(?:\w+::)*{owner}\b", code):
            yield f"{WALKTHROUGH}: names {quoted}, but there is no {owner}"


def check(root):
    readme = root / "README.md"
    if not readme.exists():
        yield "README.md: is missing"
    else:
        text = readme.read_text()
        yield from (f"README.md: does not name {c}" for c in COMMANDS if c not in text)
    for path in tree.files(root):
        if path.suffix != ".md":
            continue
        text = (root / path).read_text()
        for number, line in enumerate(text.splitlines(), 1):
            for found in MACHINE_PATH.findall(line):
                yield f"{path}:{number}: {found} is a path of one machine"
        for link in LINK.findall(CODE.sub("", text)):
            problem = check_link(root, path, link)
            if problem:
                yield f"{path}: {problem}"
    if (root / WALKTHROUGH).is_file():
        yield from check_walkthrough(root)


if __name__ == "__main__":
    tree.report(list(check(Path(sys.argv[1]))), "the documents hold together")
