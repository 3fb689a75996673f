package probe

import (
	"sync/atomic"
	"unsafe"
)

// seen takes the result of readWords, so that the compiler keeps the reads.
var seen atomic.Uint64

// readWords is the read loop of processors without another; four chains of
// additions keep up with memory.
func readWords(p *byte, rounds int) {
	words := unsafe.Slice((*uint64)(unsafe.Pointer(p)), rounds*ReadBytes/8)
	var a, b, c, d uint64
	for ; len(words) >= 8; words = words[8:] {
		w := (*[8]uint64)(words)
		a += w[0] + w[4]
		b += w[1] + w[5]
		c += w[2] + w[6]
		d += w[3] + w[7]
	}
	seen.Store(a + b + c + d)
}
