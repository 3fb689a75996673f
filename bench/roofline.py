#!/usr/bin/env python3
"""Predicts the times of a decode step and of a prompt on GPUs, from bytes and operations
alone, and prints the tables of docs/gpu.md. Nothing here is measured: the shares are what
each kernel is designed to reach, and a GPU has to confirm them."""

# Bytes a second from memory, and operations a second (two a multiply-add) in bfloat16 by tensor
# cores, by NVIDIA's data sheets.
GPUS = {
    "H100 SXM": (3.35e12, 989e12), "H200": (4.8e12, 989e12),
    "A100 80 GB": (2.04e12, 312e12), "L4": (0.30e12, 121e12),
}
MEMORY = {"H100 SXM": 80e9, "H200": 141e9, "A100 80 GB": 80e9, "L4": 24e9}

# embed, layers, heads, kv heads, head width, feed-forward, vocabulary
MODELS = {"8B": (4096, 32, 32, 8, 128, 14336, 128256), "70B": (8192, 80, 64, 8, 128, 28672, 128256)}
BYTES = {"BF16": 2.0, "Q8_0": 34 / 32, "Q4_K": 144 / 256}

PRODUCT_MEMORY = 0.65   # of the memory's rate, where a row of weights is read for few rows
PRODUCT_COMPUTE = 0.35  # of the tensor cores' rate: weights and numbers are split on the way
PRODUCTS = 3            # of bfloat16, for one of numbers with both their halves
TILE = 8                # rows that a product has at least, empty ones too
ATTENTION_MEMORY = 0.50
ATTENTION_COMPUTE = 0.20  # of the tensor cores' rate, in prompts: three products too, with softmax between
KERNELS_PER_LAYER = 9   # norm, qkv, place, attention and its merge, output, norm, gate-up, activation, down: about
KERNEL_GAP = 1.5e-6     # seconds between two kernels of a graph


def weights(model):
    e, layers, heads, kv, d, ff, vocab = MODELS[model]
    return layers * (e * (heads + 2 * kv) * d + heads * d * e + 3 * e * ff) + vocab * e


def step(gpu, model, kind, rows, context):
    memory, tensor = GPUS[gpu]
    e, layers, heads, kv, d, ff, vocab = MODELS[model]
    n, tiles = weights(model), -(-rows // TILE) * TILE
    product = max(n * BYTES[kind] / (memory * PRODUCT_MEMORY), PRODUCTS * 2 * n * tiles / (tensor * PRODUCT_COMPUTE))
    pages = rows * context * layers * 2 * kv * d * 2 / (memory * ATTENTION_MEMORY)
    return product + pages + (layers * KERNELS_PER_LAYER + 3) * KERNEL_GAP


def prompt(gpu, model, tokens):
    _, tensor = GPUS[gpu]
    e, layers, heads, kv, d, ff, vocab = MODELS[model]
    scores = PRODUCTS * layers * heads * d * 4 * tokens * tokens / 2
    products = PRODUCTS * 2 * (weights(model) - vocab * e) * tokens
    return products / (tensor * PRODUCT_COMPUTE) + scores / (tensor * ATTENTION_COMPUTE)


def fits(gpu, model, kind):
    e, _, _, _, _, _, vocab = MODELS[model]
    return (weights(model) + vocab * e) * BYTES[kind] < 0.85 * MEMORY[gpu]


def main():
    for model, kinds in (("8B", ["BF16", "Q8_0", "Q4_K"]), ("70B", ["Q8_0", "Q4_K"])):
        print(f"\n| {model}, a step in ms at 1,024 tokens of context | rows | " + " | ".join(GPUS) + " | measured |")
        print("|---|---|" + "---|" * (len(GPUS) + 1))
        for kind in kinds:
            for rows in (1, 8, 64):
                cells = [f"{1e3 * step(g, model, kind, rows, 1024):.1f}" if fits(g, model, kind) else "–" for g in GPUS]
                print(f"| {kind} | {rows} | " + " | ".join(cells) + " | |")
    print("\n| a prompt of the 8B model, ms | " + " | ".join(GPUS) + " | measured |")
    print("|---|" + "---|" * (len(GPUS) + 1))
    for tokens in (512, 2048, 8192):
        print(f"| {tokens:,} tokens | " + " | ".join(f"{1e3 * prompt(g, '8B', tokens):,.0f}" for g in GPUS) + " | |")


if __name__ == "__main__":
    main()
