package cuda

import (
	"encoding/binary"
	"math"
)

// Address is a place in the device's memory; 0 is none.
type Address uint64

// Args are a launch's parameters, in the kernel's order, each at a multiple of its size. The
// methods return the Args for the next one. It is used again after Reset.
type Args struct{ bytes []byte }

// Reset forgets the parameters.
func (a *Args) Reset() *Args {
	a.bytes = a.bytes[:0]
	return a
}

// At adds an address, or several.
func (a *Args) At(all ...Address) *Args {
	for _, p := range all {
		a.Long(uint64(p))
	}
	return a
}

// Long adds an integer of eight bytes.
func (a *Args) Long(n uint64) *Args {
	for len(a.bytes)%8 != 0 {
		a.bytes = append(a.bytes, 0)
	}
	a.bytes = binary.LittleEndian.AppendUint64(a.bytes, n)
	return a
}

// Int adds integers of four bytes.
func (a *Args) Int(all ...int) *Args {
	for _, n := range all {
		a.bytes = binary.LittleEndian.AppendUint32(a.bytes, uint32(int32(n)))
	}
	return a
}

// Float adds numbers.
func (a *Args) Float(all ...float32) *Args {
	for _, x := range all {
		a.bytes = binary.LittleEndian.AppendUint32(a.bytes, math.Float32bits(x))
	}
	return a
}
