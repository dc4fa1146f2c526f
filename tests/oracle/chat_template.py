"""Whether transformers writes chats as we do.

    chat_template.py CASES

CASES is a list of {"folder": a tokenizer, "messages": [...], "text": what we write, up to where
an answer begins}.
"""
import json
import sys

import transformers


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        cases = json.load(file)
    assert cases
    for case in cases:
        tokenizer = transformers.AutoTokenizer.from_pretrained(case["folder"])
        text = tokenizer.apply_chat_template(
            case["messages"], tokenize=False, add_generation_prompt=True)
        if text != case["text"]:
            sys.exit(f"{tokenizer.chat_template}\n{text!r}, ours is\n{case['text']!r}")
    print(f"{len(cases)} templates: no difference")


main()
