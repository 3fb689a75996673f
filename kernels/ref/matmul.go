package ref

// Matrix is a weight matrix as a model file stores it: rows of Cols elements of
// one type, RowBytes each.
type Matrix struct {
	Type           uint32
	Cols, RowBytes int
	Data           []byte
}

// MatMul computes dst[i·dstStride+r] = Σ_c m[r,c]·x[i·m.Cols+c] for r in [r0,r1)
// and i in [0,n).
func MatMul(dst []float32, dstStride int, m Matrix, x []float32, n, r0, r1 int) {
	for i := 0; i < n; i += rowsAtOnce {
		for r := r0; r < r1; r++ {
			row := m.Data[r*m.RowBytes : (r+1)*m.RowBytes]
			rows := min(rowsAtOnce, n-i)
			sums := dotRows(m, row, x[i*m.Cols:], rows)
			for k := range rows {
				dst[(i+k)*dstStride+r] = float32(sums[k])
			}
		}
	}
}

// rowsAtOnce is how many rows of x share one dequantisation.
const rowsAtOnce = 8

// dotRows gives the products of one stored row with rows rows of x. The row is dequantised
// part by part, which does not change the order of additions.
func dotRows(m Matrix, row []byte, x []float32, rows int) (sums [rowsAtOnce]float64) {
	var piece [BlockLenMax]float32
	for c := 0; c < m.Cols; c += len(piece) {
		w := piece[:min(len(piece), m.Cols-c)]
		Dequantize(w, m.Type, row[c*m.RowBytes/m.Cols:])
		for k := range rows {
			sum := sums[k]
			for j, v := range x[k*m.Cols+c:][:len(w)] {
				sum += float64(w[j]) * float64(v)
			}
			sums[k] = sum
		}
	}
	return sums
}
