package kernels

// LayoutVersion changes whenever Pack gives other bytes for the same matrix, in
// any set. A caller that keeps packed matrices keeps the version with them. Sets and
// types may be added without a change.
const LayoutVersion = 2

// PackedBytes is the size of what Pack makes of a rows×cols matrix, whose type is
// known and whose cols are a multiple of its BlockLen.
func (s *Set) PackedBytes(t Type, rows, cols int) int {
	if !s.InAssembly(t) || t.Coded() {
		return rows * t.Bytes(cols)
	}
	return (rows + RowTile - 1) / RowTile * RowTile * floatTiles.rowBytes(t, cols) // byteTiles take as many
}
