package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// gpr and vreg are a general register and a vector register by number. Functions choose their
// registers themselves. R16 to R18 and R27 to R30 are reserved by Go and the platform.
type (
	gpr  int
	vreg int
)

func (r gpr) String() string  { return fmt.Sprintf("R%d", int(r)) }
func (v vreg) String() string { return fmt.Sprintf("V%d", int(v)) }

// asm is the text of the two files that are written.
type asm struct {
	text, stubs strings.Builder
	offsets     map[string]int // of the current function's parameters
	pool        [][16]byte     // constants, at base
	places      map[[16]byte]int
	base        gpr
}

// op writes an instruction that Go's assembler has.
func (a *asm) op(format string, args ...any) { fmt.Fprintf(&a.text, "\t"+format+"\n", args...) }

func (a *asm) label(name string) { fmt.Fprintf(&a.text, "\n%s:\n", name) }

// word writes an instruction that Go's assembler lacks, with its standard name.
func (a *asm) word(code uint32, format string, args ...any) {
	fmt.Fprintf(&a.text, "\tWORD $0x%08x // %s\n", code, fmt.Sprintf(format, args...))
}

// forms has the instructions of the forms "op d, n, m" and "op d, n", by mnemonic and
// arrangements, with zeros for registers.
var forms = map[string]struct {
	code      uint32
	d, others string // arrangements
}{
	"fmla": {0x4e20cc00, "4s", "4s"}, "fmls": {0x4ea0cc00, "4s", "4s"}, "fmla.2d": {0x4e60cc00, "2d", "2d"},
	"fadd": {0x4e20d400, "4s", "4s"}, "fsub": {0x4ea0d400, "4s", "4s"}, "fadd.2d": {0x4e60d400, "2d", "2d"},
	"fmul": {0x6e20dc00, "4s", "4s"}, "fdiv": {0x6e20fc00, "4s", "4s"},
	"fmax": {0x4e20f400, "4s", "4s"}, "fmin": {0x4ea0f400, "4s", "4s"}, "fmaxp": {0x6e20f400, "4s", "4s"},
	"faddp": {0x6e20d400, "4s", "4s"}, "faddp.2d": {0x6e60d400, "2d", "2d"}, "bic": {0x4e601c00, "16b", "16b"},

	"fneg": {0x6ea0f800, "4s", "4s"}, "scvtf": {0x4e21d800, "4s", "4s"}, "fcvtns": {0x4e21a800, "4s", "4s"},
	"fcvtl": {0x0e217800, "4s", "4h"}, "fcvtl2": {0x4e217800, "4s", "8h"},
	"fcvtl.2d": {0x0e617800, "2d", "2s"}, "fcvtl2.2d": {0x4e617800, "2d", "4s"},
	"sxtl.8h": {0x0f08a400, "8h", "8b"}, "sxtl2.8h": {0x4f08a400, "8h", "16b"},
	"sxtl": {0x0f10a400, "4s", "4h"}, "sxtl2": {0x4f10a400, "4s", "8h"},
}

// three writes d = n op m; for fmla and fmls d = d ± n·m.
func (a *asm) three(name string, d, n, m vreg) {
	f, mnemonic := a.form(name)
	a.word(f.code|uint32(m)<<16|uint32(n)<<5|uint32(d), "%s v%d.%s, v%d.%s, v%d.%s", mnemonic, d, f.d, n, f.others, m, f.others)
}

// two writes d = op n.
func (a *asm) two(name string, d, n vreg) {
	f, mnemonic := a.form(name)
	a.word(f.code|uint32(n)<<5|uint32(d), "%s v%d.%s, v%d.%s", mnemonic, d, f.d, n, f.others)
}

func (a *asm) form(name string) (struct {
	code      uint32
	d, others string
}, string) {
	f, ok := forms[name]
	if !ok {
		panic("no instruction " + name)
	}
	mnemonic, _, _ := strings.Cut(name, ".")
	return f, mnemonic
}

// fmlaLane writes d += n·m[lane] for four lanes of float32.
func (a *asm) fmlaLane(d, n, m vreg, lane int) {
	code := 0x4f801000 | uint32(lane&1)<<21 | uint32(lane>>1)<<11
	a.word(code|uint32(m)<<16|uint32(n)<<5|uint32(d), "fmla v%d.4s, v%d.4s, v%d.s[%d]", d, n, m, lane)
}

// shll16 makes four float32 of the lower, or upper, four bfloat16.
func (a *asm) shll16(d, n vreg, upper bool) {
	code, text := uint32(0x2e613800), "shll v%d.4s, v%d.4h, #16"
	if upper {
		code, text = 0x6e613800, "shll2 v%d.4s, v%d.8h, #16"
	}
	a.word(code|uint32(n)<<5|uint32(d), text, d, n)
}

// sshr shifts four signed words to the right.
func (a *asm) sshr(d, n vreg, by int) {
	a.word(0x4f000400|uint32(64-by)<<16|uint32(n)<<5|uint32(d), "sshr v%d.4s, v%d.4s, #%d", d, n, by)
}

func (a *asm) zero(v vreg) { a.op("VEOR %v.B16, %v.B16, %v.B16", v, v, v) }

// load and store move a vector, or one float32 where whole is false: then the other lanes are
// 0.
func (a *asm) load(d vreg, whole bool, at gpr, disp int) {
	a.op("%s %d(%v), F%d", moveOf(whole), disp, at, d)
}

func (a *asm) store(v vreg, whole bool, at gpr, disp int) {
	a.op("%s F%d, %d(%v)", moveOf(whole), v, disp, at)
}

func moveOf(whole bool) string {
	if whole {
		return "FMOVQ"
	}
	return "FMOVS"
}

// num loads four equal numbers, bits four equal words.
func (a *asm) num(d vreg, f float64) { a.bits(d, math.Float32bits(float32(f))) }

func (a *asm) bits(d vreg, word uint32) {
	var c [16]byte
	for i := range 4 {
		binary.LittleEndian.PutUint32(c[4*i:], word)
	}
	a.constant(d, c)
}

func (a *asm) constant(d vreg, c [16]byte) {
	at, ok := a.places[c]
	if !ok {
		at = 16 * len(a.pool)
		a.places[c], a.pool = at, append(a.pool, c)
	}
	a.op("FMOVQ %d(%v), F%d", at, a.base, d)
}

// function begins a function with a frame of that many bytes. Its parameters are "name type";
// base is the register that points to the constants, which the function leaves alone.
func (a *asm) function(name, params, result, doc string, frame int, base gpr) {
	a.offsets, a.base = map[string]int{}, base
	at := 0
	for _, p := range strings.Split(params, ", ") {
		word, typ, _ := strings.Cut(p, " ")
		size := map[string]int{"[]float32": 24, "float32": 4}[typ]
		if size == 0 {
			size = 8
		}
		if size > 4 {
			at = (at + 7) &^ 7
		}
		a.offsets[word] = at
		at += size
	}
	if result != "" {
		at = (at + 7) &^ 7
	}
	a.offsets["ret"] = at
	at += map[string]int{"": 0, "float32": 4, "float64": 8}[result]
	fmt.Fprintf(&a.text, "\n// func %s(%s) %s\nTEXT ·%s(SB), NOSPLIT, $%d-%d\n", name, params, result, name, frame, at)
	fmt.Fprintf(&a.stubs, "\n// %s\n//\n//go:noescape\nfunc %s(%s) %s\n", doc, name, params, result)
	a.op("MOVD $constants<>(SB), %v", base)
}

// param loads a parameter: a slice's base is name_base, its length name_len.
func (a *asm) param(name string, r gpr) {
	word, part, _ := strings.Cut(name, "_")
	at, ok := a.offsets[word]
	if !ok {
		panic("no parameter " + name)
	}
	if part == "len" {
		at += 8
	}
	a.op("MOVD %s+%d(FP), %v", name, at, r)
}

// splat fills a vector with a float32 parameter.
func (a *asm) splat(name string, v vreg) {
	a.op("FMOVS %s+%d(FP), F%d", name, a.offsets[name], v)
	a.op("VDUP %v.S[0], %v.S4", v, v)
}

func (a *asm) ret() { a.op("RET") }

// constants writes the pool.
func (a *asm) constants() {
	a.text.WriteString("\n")
	for i, c := range a.pool {
		for half := range 2 {
			fmt.Fprintf(&a.text, "DATA constants<>+%d(SB)/8, $0x%016x\n", 16*i+8*half, binary.LittleEndian.Uint64(c[8*half:]))
		}
	}
	fmt.Fprintf(&a.text, "GLOBL constants<>(SB), RODATA|NOPTR, $%d\n", 16*len(a.pool))
}
