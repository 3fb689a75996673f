#!/usr/bin/env python3
"""Times masks and compilation, Forebay beside llguidance, over schemas with instances.

    pip install llguidance numpy tokenizers
    go build -o /tmp/forebay . && python bench/masks.py SCHEMAS.jsonl tokenizer.json /tmp/forebay

Both walk the canonical tokens of every instance and find the mask before each. A line of
the file has id, schema, valid and invalid. Times are wall times of one thread.
"""
import json
import subprocess
import sys
import time

import llguidance
import llguidance.numpy
from tokenizers import Tokenizer


def ranks(name, unit, values):
    values = sorted(values)
    at = lambda q: values[min(len(values) - 1, int(q * len(values)))]
    print(f"{name:9} p50 {at(.5):.2f}  p90 {at(.9):.2f}  p99 {at(.99):.2f}  p99.9 {at(.999):.2f}  max {values[-1]:.2f} {unit}, {len(values)}")


def main():
    schemas, vocabulary, forebay = sys.argv[1:4]
    words = Tokenizer.from_file(vocabulary)
    tokenizer = llguidance.LLTokenizer(vocabulary)
    bits = llguidance.numpy.allocate_token_bitmask(1, tokenizer.vocab_size)
    masks, compiles, refused = [], [], 0
    for line in open(schemas):
        case = json.loads(line)
        begin = time.perf_counter()
        try:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(case["schema"])
            matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0)
            error = matcher.get_error()
        except ValueError as e:
            error = str(e)
        if error:
            refused += 1
            continue
        compiles.append((time.perf_counter() - begin) * 1e3)
        for instance in case.get("valid", []) + case.get("invalid", []):
            text = json.dumps(instance, separators=(",", ":"), ensure_ascii=False)
            matcher.reset()
            for token in words.encode(text, add_special_tokens=False).ids:
                begin = time.perf_counter()
                llguidance.numpy.fill_next_token_bitmask(matcher, bits, 0)
                masks.append((time.perf_counter() - begin) * 1e6)
                if not matcher.consume_token(token):
                    break
    print(f"llguidance: compiled {len(compiles)}, refused {refused}")
    ranks("compile", "ms", compiles)
    ranks("mask", "µs", masks)
    print("forebay:", flush=True)
    subprocess.run([forebay, "grammar", "test", schemas, "--tokenizer", vocabulary], check=True)


main()
