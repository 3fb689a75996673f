"""Prints what llama.cpp allocates for the keys, values and states of one sequence, by its own log.

    pip install llama-cpp-python
    python bench/llama_memory.py MODEL.gguf [TOKENS]

TOKENS (32768) is the context. Keys and values are f16, a batch has 512 tokens, and layers with
windows keep these alone (swa_full off, as llama-server has it).
"""
import ctypes
import sys

import llama_cpp as L

lines = []
keep = L.llama_log_callback(lambda level, text, data: lines.append(text.decode(errors="replace")))
L.llama_log_set(keep, ctypes.c_void_p(0))
L.llama_backend_init()
model = L.llama_model_load_from_file(sys.argv[1].encode(), L.llama_model_default_params())
params = L.llama_context_default_params()
params.n_ctx = int(sys.argv[2]) if len(sys.argv) > 2 else 32768
params.n_seq_max, params.n_ubatch, params.swa_full = 1, 512, False
lines.clear()
if not model or not L.llama_init_from_model(model, params):
    sys.exit("".join(lines) or "the model does not load")
print("\n".join(line for line in "".join(lines).splitlines() if "buffer size" in line))
