#!/usr/bin/env python3
"""Compiles kernels.cu to PTX with NVRTC, which needs no GPU and no toolkit:

    pip install nvidia-cuda-nvrtc-cu12==12.9.86 nvidia-cuda-nvcc-cu12==12.9.86
    ./ptx.py            writes kernels.ptx.gz
    ./ptx.py --check    compares it byte for byte, and has ptxas assemble it

The versions are part of the result: another one may write other PTX."""
import ctypes
import glob
import gzip
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import tempfile

ARCH = "compute_80"  # runs on Ampere and everything later
TARGETS = ["sm_80", "sm_89", "sm_90", "sm_100"]
VERSION = (12, 9)
SPILLS_MAX = 0  # bytes of registers that a kernel keeps in memory
SOURCES = ["kernels.cu", "pages.cu", "attention.cu", "attention_row.cu", "attention_prompt.cu", "matmul.cu", "rows.cu", "recurrent.cu", "sample.cu", "batch.h", "device.h", "types.h", "codebooks.h"]
HERE = os.path.dirname(os.path.abspath(__file__))
OUTPUT = os.path.join(HERE, "kernels.ptx.gz")
REGISTERS = os.path.join(HERE, "registers.txt")


def nvidia(pattern):
    for folder in {sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"], *sys.path}:
        found = glob.glob(os.path.join(folder, "nvidia", pattern))
        if found:
            return sorted(found)[0]
    sys.exit(f"nvidia/{pattern} is not installed; see the head of {__file__}")


def compile_ptx():
    lib = ctypes.CDLL(nvidia("cuda_nvrtc/lib/libnvrtc.so.12"))
    major, minor = ctypes.c_int(), ctypes.c_int()
    lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    if (major.value, minor.value) != VERSION:
        sys.exit(f"NVRTC is {major.value}.{minor.value}; kernels.ptx.gz is made by {VERSION[0]}.{VERSION[1]}")
    source, *texts = [open(os.path.join(HERE, n), "rb").read() for n in SOURCES]
    names = SOURCES[1:]
    program = ctypes.c_void_p()
    lib.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", len(names),
                           (ctypes.c_char_p * len(names))(*texts), (ctypes.c_char_p * len(names))(*[n.encode() for n in names]))
    options = [f"--gpu-architecture={ARCH}".encode(), b"--std=c++17", b"--device-as-default-execution-space"]
    failed = lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetProgramLog(program, log)
    if log.value.strip():
        print(log.value.decode(), file=sys.stderr)
    if failed:
        sys.exit(1)
    lib.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetPTX(program, ptx)
    # A test compares this line with the sources, where NVRTC is not at hand.
    return b"// sources " + hashlib.sha256(source + b"".join(texts)).hexdigest().encode() + b"\n" + ptx.value


def assemble(ptx):
    """Registers and spills of each kernel on each target."""
    ptxas, lines, worst = nvidia("cuda_nvcc/bin/ptxas"), [], 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernels.ptx")
        open(path, "wb").write(ptx)
        for target in TARGETS:
            run = subprocess.run([ptxas, "-v", f"-arch={target}", "-o", os.devnull, path], capture_output=True, text=True)
            if run.returncode:
                sys.exit(run.stderr)
            name = spills = None
            for line in run.stderr.splitlines():
                if m := re.search(r"Compiling entry function '(\w+)'", line):
                    name = m[1]
                elif m := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
                    spills = int(m[1]) + int(m[2])
                elif m := re.search(r"Used (\d+) registers", line):
                    lines.append(f"{target} {name} {m[1]} {spills}")
                    worst = max(worst, spills)
    if worst > SPILLS_MAX:
        sys.exit(f"a kernel spills {worst} bytes; allowed are {SPILLS_MAX}\n" + "\n".join(l for l in lines if not l.endswith(" 0")))
    return "# target kernel registers spilled-bytes\n" + "\n".join(sorted(lines)) + "\n"


def main():
    ptx = compile_ptx()
    packed = gzip.compress(ptx, 9, mtime=0)
    if "--check" not in sys.argv:
        open(OUTPUT, "wb").write(packed)
        open(REGISTERS, "w").write(assemble(ptx))
        print(f"{OUTPUT}: {len(ptx)} bytes, {len(packed)} packed")
        return
    if gzip.decompress(open(OUTPUT, "rb").read()) != ptx:
        sys.exit("kernels.ptx.gz is not what kernels.cu compiles to; run kernels/cuda/ptx.py")
    if open(REGISTERS).read() != assemble(ptx):
        sys.exit("registers.txt is not what ptxas says; run kernels/cuda/ptx.py")
    print(f"kernels.ptx.gz is what the sources compile to; ptxas assembles it for {', '.join(TARGETS)} without spills")


if __name__ == "__main__":
    main()
