package cuda

import (
	"fmt"

	"github.com/forebay-io/forebay/kernels"
)

// field is a part of a type's block: where it begins there, and its bytes.
type field struct{ at, bytes int }

// fields has, for every type, the planes of types.h in their order.
var fields = map[kernels.Type][]field{
	kernels.F32: {{0, 4}}, kernels.F16: {{0, 2}}, kernels.BF16: {{0, 2}},
	kernels.Q8_0: {{2, 32}, {0, 2}}, kernels.Q4_0: {{2, 16}, {0, 2}}, kernels.Q4_1: {{4, 16}, {0, 4}},
	kernels.Q5_0: {{6, 16}, {2, 4}, {0, 2}}, kernels.Q5_1: {{8, 16}, {4, 4}, {0, 4}},
	kernels.IQ4_NL: {{2, 16}, {0, 2}}, kernels.MXFP4: {{1, 16}, {0, 1}},
	kernels.Q2_K: {{16, 64}, {0, 16}, {80, 4}}, kernels.Q3_K: {{32, 64}, {0, 32}, {96, 12}, {108, 2}},
	kernels.Q4_K: {{16, 128}, {4, 12}, {0, 4}}, kernels.Q5_K: {{48, 128}, {16, 32}, {4, 12}, {0, 4}},
	kernels.Q6_K: {{0, 128}, {128, 64}, {192, 16}, {208, 2}}, kernels.IQ4_XS: {{8, 128}, {0, 8}},
	kernels.IQ1_S: {{2, 32}, {34, 16}, {0, 2}}, kernels.IQ1_M: {{0, 32}, {32, 16}, {48, 8}},
	kernels.IQ2_XXS: {{2, 64}, {0, 2}}, kernels.IQ2_XS: {{2, 64}, {66, 8}, {0, 2}}, kernels.IQ2_S: {{2, 64}, {66, 16}, {0, 2}},
	kernels.IQ3_XXS: {{2, 64}, {66, 32}, {0, 2}}, kernels.IQ3_S: {{2, 64}, {66, 44}, {0, 2}},
	kernels.TQ1_0: {{0, 52}, {52, 2}}, kernels.TQ2_0: {{0, 64}, {64, 2}},
}

// names are the types as the kernels' names have them.
var names = map[kernels.Type]string{
	kernels.F32: "f32", kernels.F16: "f16", kernels.BF16: "bf16", kernels.Q8_0: "q8_0", kernels.Q4_0: "q4_0", kernels.Q4_1: "q4_1",
	kernels.Q5_0: "q5_0", kernels.Q5_1: "q5_1", kernels.Q2_K: "q2_k", kernels.Q3_K: "q3_k", kernels.Q4_K: "q4_k",
	kernels.Q5_K: "q5_k", kernels.Q6_K: "q6_k", kernels.IQ4_NL: "iq4_nl", kernels.IQ4_XS: "iq4_xs", kernels.MXFP4: "mxfp4",
	kernels.IQ1_S: "iq1_s", kernels.IQ1_M: "iq1_m", kernels.IQ2_XXS: "iq2_xxs", kernels.IQ2_XS: "iq2_xs", kernels.IQ2_S: "iq2_s",
	kernels.IQ3_XXS: "iq3_xxs", kernels.IQ3_S: "iq3_s", kernels.TQ1_0: "tq1_0", kernels.TQ2_0: "tq2_0",
}

// planeAlign divides the place of a plane.
const planeAlign = 256

// colsStep divides the columns of a matrix: a lane reads eight.
const colsStep = 8

// CheckMatrix refuses a matrix that the kernels cannot read.
func CheckMatrix(t kernels.Type, cols int) error {
	if names[t] == "" {
		return fmt.Errorf("the type %s is not computed on the GPU", t)
	}
	if cols%max(colsStep, t.BlockLen()) != 0 {
		return fmt.Errorf("rows of %d numbers are not computed on the GPU: the length must be a multiple of %d", cols, max(colsStep, t.BlockLen()))
	}
	return nil
}

// PlanesBytes is the size of a matrix on the device.
func PlanesBytes(t kernels.Type, rows, cols int) int {
	n, end := rows*(cols/t.BlockLen()), 0
	for _, f := range fields[t] {
		end = alignUp(end) + n*f.bytes
	}
	return alignUp(end)
}

func alignUp(n int) int { return (n + planeAlign - 1) / planeAlign * planeAlign }

// PutPlanes writes rows of blocks, as a file has them, to their places among the planes of a
// matrix of rows×cols, from row first on. visit gets pieces that lie together: their place
// among the planes, and how to fill a buffer of that many bytes.
func PutPlanes(t kernels.Type, rows, cols, first int, raw []byte, visit func(at, bytes int, fill func(dst []byte)) error) error {
	perRow := cols / t.BlockLen()
	size, all, given := t.Bytes(t.BlockLen()), rows*perRow, len(raw)/t.Bytes(t.BlockLen())
	plane := 0
	for _, f := range fields[t] {
		plane = alignUp(plane)
		// Pieces of bounded size: the buffers are small beside a matrix.
		for from := 0; from < given; {
			n := min(given-from, max(1, PieceBytes/f.bytes))
			blocks := raw[from*size : (from+n)*size]
			err := visit(plane+(first*perRow+from)*f.bytes, n*f.bytes, func(dst []byte) { f.take(dst, blocks, size) })
			if err != nil {
				return err
			}
			from += n
		}
		plane += all * f.bytes
	}
	return nil
}

// PieceBytes bounds a piece that PutPlanes gives.
const PieceBytes = 4 << 20

// take copies the field of each block.
func (f field) take(dst, blocks []byte, size int) {
	if f.bytes == size {
		copy(dst, blocks)
		return
	}
	for i := 0; i < len(dst); i += f.bytes {
		copy(dst[i:i+f.bytes], blocks[f.at:])
		blocks = blocks[size:]
	}
}

// TypeName is the type as the kernels' names have it.
func TypeName(t kernels.Type) string { return names[t] }
