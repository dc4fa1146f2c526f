#!/usr/bin/env python3
"""Writes the table of letters, numbers and white space that the tokenizer splits words by.

    ~/.cache/lockstep/oracle-2.11.0/bin/python tools/make_categories.py lockstep/tokenizer/categories_table.cpp

It asks tiktoken, which the tokenizer has to agree with, and refuses to write where the
library of Hugging Face says otherwise. Both have had Unicode 16 since 2024.
"""
import pathlib
import subprocess
import sys

import tiktoken
import tokenizers

OTHER, LETTER, NUMBER, SPACE = range(4)
HEAD = """// Written by tools/make_categories.py from tiktoken {version}: do not edit.
#include "lockstep/tokenizer/detail/categories.h"

namespace lockstep::tokenizer {{

const std::array<std::uint32_t, kCategoryRanges> kCategoryTable = {{
"""
TAIL = """};

}  // namespace lockstep::tokenizer
"""


def matcher(pattern):
    """Says whether a text has a match: text without one gives no tokens."""
    encoding = tiktoken.Encoding(name="bytes", pat_str=pattern, special_tokens={},
                                 mergeable_ranks={bytes([byte]): byte for byte in range(256)})
    return lambda text: bool(encoding.encode_ordinary(text))


def category_of(character, is_letter, is_number, is_space):
    if is_letter(character):
        return LETTER
    if is_number(character):
        return NUMBER
    return SPACE if is_space(character) else OTHER


def category_in_tokenizers(character, splitter):
    for category, neighbour in ((LETTER, "a"), (NUMBER, "1"), (OTHER, "!")):
        if len(splitter.pre_tokenize_str(neighbour + character)) == 1:
            return category
    return SPACE


def ranges():
    matchers = matcher(r"\p{L}"), matcher(r"\p{N}"), matcher(r"\s")
    splitter = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    last = None
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:  # surrogates are in no text
            continue
        category = category_of(chr(code), *matchers)
        if category != category_in_tokenizers(chr(code), splitter):
            sys.exit(f"make_categories: tiktoken and tokenizers differ at U+{code:04X}")
        if category != last:
            yield code << 2 | category
            last = category


def main():
    target = pathlib.Path(sys.argv[1])
    numbers = list(ranges())
    text = HEAD.format(version=tiktoken.__version__) + ", ".join(map(hex, numbers)) + TAIL
    target.write_text(text)
    subprocess.run(["clang-format-14", "-i", str(target)], check=True)
    print(f"{len(numbers)} ranges: kCategoryRanges in detail/categories.h")


if __name__ == "__main__":
    main()
