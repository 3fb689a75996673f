package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// evexCodes are the instructions on vectors of 512 bits that neither avo nor the Go assembler
// knows, all of opcode map 0F38: their mandatory prefix in EVEX's coding, and their opcode.
// The programs use them by name, and after Generate encodeUnknown writes their bytes.
var evexCodes = map[string]struct{ prefix, opcode byte }{
	"VDPBF16PS":      {2, 0x52},
	"VCVTNE2PS2BF16": {3, 0x72},
}

// evex adds an instruction of evexCodes to the program, with Go's order of operands. It
// overwrites dst; with keep it reads dst too.
func evex(name string, keep bool, src2 Op, src1, dst reg.VecVirtual, suffixes ...string) {
	in := []Op{src2, src1}
	if keep {
		in = append(in, dst)
	}
	Instruction(&ir.Instruction{Opcode: name, Suffixes: suffixes, Operands: []Op{src2, src1, dst}, Inputs: in, Outputs: []Op{dst}})
}

// encodeUnknown replaces the instructions of evexCodes and amxCodes by their bytes in the
// assembly that Generate wrote: which registers they have is known only then, and avo
// gives no other place to see them.
func encodeUnknown(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		mnemonic, operands, _ := strings.Cut(strings.TrimSpace(line), " ")
		mnemonic, suffix, _ := strings.Cut(mnemonic, ".")
		operands = strings.TrimSpace(operands)
		var bytes []byte
		if code, ok := evexCodes[mnemonic]; ok {
			bytes = encode(code.prefix, code.opcode, strings.Split(operands, ", "), suffix == "BCST")
		} else if code, ok := amxCodes[mnemonic]; ok {
			bytes = code.encode(strings.Split(operands, ", "))
		} else {
			continue
		}
		var b strings.Builder
		for _, c := range bytes {
			fmt.Fprintf(&b, "BYTE $0x%02x; ", c)
		}
		lines[i] = strings.TrimSuffix(fmt.Sprintf("\t%s// %s %s", b.String(), strings.TrimSuffix(mnemonic+"."+suffix, "."), operands), " ")
	}
	return os.WriteFile(name, []byte(strings.Join(lines, "\n")), 0o644)
}

// generalRegisters are numbered as instructions number them.
var generalRegisters = strings.Fields("AX CX DX BX SP BP SI DI R8 R9 R10 R11 R12 R13 R14 R15")

func general(name string) byte {
	n := slices.Index(generalRegisters, name)
	if n < 0 {
		panic("no register " + name)
	}
	return byte(n)
}

func zmm(name string) byte {
	n, err := strconv.ParseUint(strings.TrimPrefix(name, "Z"), 10, 5)
	if err != nil {
		panic(err)
	}
	return byte(n)
}

// memory is an operand as avo prints it.
var memory = regexp.MustCompile(`^(-?[0-9]+)?\(([A-Z0-9]+)\)(?:\(([A-Z0-9]+)\*([1248])\))?$`)

// encode gives the bytes of an instruction with operands src2, src1 and dst. From memory, src2
// is a whole vector, or with broadcast a word for all lanes.
func encode(prefix, opcode byte, operands []string, broadcast bool) []byte {
	src1, dst := zmm(operands[1]), zmm(operands[2])
	var x, b byte // bits 3 of index and base, or 4 and 3 of a vector
	var tail []byte
	if m := memory.FindStringSubmatch(operands[0]); m != nil {
		base, index, scale, disp := memoryOperand(m)
		x, b = index>>3, base>>3
		unit := 64
		if broadcast {
			unit = 4
		}
		tail = address(dst, base, index, scale, disp, unit)
	} else {
		src2 := zmm(operands[0])
		x, b = src2>>4, src2>>3&1
		tail = []byte{0xc0 | dst&7<<3 | src2&7}
	}
	mode := byte(0x40) // 512 bits
	if broadcast {
		mode |= 0x10
	}
	return append([]byte{
		0x62,
		(dst>>3&1^1)<<7 | (x^1)<<6 | (b^1)<<5 | (dst>>4^1)<<4 | 2, // opcode map 0F38
		(src1&15^15)<<3 | 4 | prefix,
		mode | (src1>>4^1)<<3,
		opcode,
	}, tail...)
}

// memoryOperand reads a match of memory; index 4 is none.
func memoryOperand(m []string) (base, index, scale byte, disp int) {
	base, index = general(m[2]), 4
	if m[3] != "" {
		index = general(m[3])
		scale = byte(slices.Index([]string{"1", "2", "4", "8"}, m[4]))
	}
	disp, _ = strconv.Atoi(m[1])
	return base, index, scale, disp
}

// address is ModRM, SIB and displacement of an operand in memory, with the short
// displacement, in units, where it fits.
func address(dst, base, index, scale byte, disp, unit int) []byte {
	mod, after := byte(0x80), []byte{byte(disp), byte(disp >> 8), byte(disp >> 16), byte(disp >> 24)}
	switch short := disp / unit; {
	case disp == 0 && base&7 != 5:
		mod, after = 0, nil
	case disp%unit == 0 && short == int(int8(short)):
		mod, after = 0x40, []byte{byte(short)}
	}
	if index == 4 && base&7 != 4 {
		return append([]byte{mod | dst&7<<3 | base&7}, after...)
	}
	return append([]byte{mod | dst&7<<3 | 4, scale<<6 | index&7<<3 | base&7}, after...)
}
