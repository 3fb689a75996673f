package main

import (
	"strings"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
)

// amxCode is the VEX coding of an instruction on tiles, all of opcode map 0F38: its mandatory
// prefix and its opcode.
type amxCode struct{ prefix, opcode byte }

// amxCodes are the instructions of AMX that are used here. Neither avo nor the Go assembler
// knows any of them; encodeUnknown writes their bytes.
var amxCodes = map[string]amxCode{
	"LDTILECFG":   {0, 0x49},
	"TILERELEASE": {0, 0x49},
	"TILEZERO":    {3, 0x49},
	"TILELOADD":   {3, 0x4b},
	"TILESTORED":  {2, 0x4b},
	"TDPBSUD":     {2, 0x5e},
}

// tmm is a tile register by its number; avo sees a constant.
type tmm = U8

// onTiles adds an instruction of amxCodes to the program, with Go's order of operands.
func onTiles(name string, operands ...Op) {
	in := &ir.Instruction{Opcode: name, Operands: operands}
	for _, o := range operands {
		if m, ok := o.(Mem); ok {
			in.Inputs = append(in.Inputs, m)
		}
	}
	Instruction(in)
}

// encode gives the bytes of an instruction with these operands: none, one tile, three, or
// memory with the tile that it is loaded to or stored from.
func (c amxCode) encode(operands []string) []byte {
	var reg, src, x, b byte // src: the number in the prefix
	tail := []byte{0xc0}
	var tiles []byte
	var at []string
	for _, o := range operands {
		if n, isTile := strings.CutPrefix(o, "$0x0"); isTile {
			tiles = append(tiles, n[0]-'0')
		} else if o != "" {
			at = memory.FindStringSubmatch(o)
		}
	}
	switch {
	case at != nil:
		if len(tiles) == 1 {
			reg = tiles[0]
		}
		base, index, scale, disp := memoryOperand(at)
		x, b = index>>3, base>>3
		tail = address(reg, base, index, scale, disp, 1)
	case len(tiles) == 3: // B, A and the sums
		src = tiles[0]
		tail = []byte{0xc0 | tiles[2]<<3 | tiles[1]}
	case len(tiles) == 1:
		tail = []byte{0xc0 | tiles[0]<<3}
	}
	return append([]byte{0xc4, 0x80 | (x^1)<<6 | (b^1)<<5 | 2, (src^15)<<3 | c.prefix, c.opcode}, tail...)
}
