package machine

import (
	"sync"
	"time"
)

const (
	bufferBytesMin = 64 << 20
	bufferBytesMax = 512 << 20
)

// ReadRate measures the rate, in bytes a second, at which threads together read
// memory sequentially, as a model's weights are read. It reads a buffer of four
// times lastCache, the bytes of the last-level cache, within bounds. It takes
// about limit, after the time to make the buffer.
func ReadRate(threads, lastCache int, limit time.Duration) float64 {
	words := min(max(4*lastCache, bufferBytesMin), bufferBytesMax) / 8 / threads
	parts := make([][]uint64, threads)
	var all sync.WaitGroup
	each := func(do func(i int)) {
		for i := range threads {
			all.Go(func() { do(i) })
		}
		all.Wait()
	}
	each(func(i int) {
		parts[i] = make([]uint64, words)
		for at := range parts[i] {
			parts[i][at] = uint64(at) // memory that was never written is one shared page of zeros
		}
	})
	read := make([]int, threads)
	sums := make([]uint64, threads) // keeps the compiler from dropping the sums
	begun := time.Now()
	each(func(i int) {
		const step = 1 << 17 // words between two reads of the clock: a megabyte
		for time.Since(begun) < limit {
			for rest := parts[i]; len(rest) > 0; {
				n := min(step, len(rest))
				sums[i] += sum(rest[:n])
				read[i] += 8 * n
				if rest = rest[n:]; time.Since(begun) >= limit {
					break
				}
			}
		}
	})
	took := time.Since(begun)
	total := 0
	for _, n := range read {
		total += n
	}
	return float64(total) / took.Seconds()
}

// sum adds every word. Four independent sums are fast enough for memory.
func sum(words []uint64) uint64 {
	var a, b, c, d uint64
	for len(words) >= 8 {
		w := (*[8]uint64)(words)
		a += w[0] + w[4]
		b += w[1] + w[5]
		c += w[2] + w[6]
		d += w[3] + w[7]
		words = words[8:]
	}
	for _, w := range words {
		a += w
	}
	return a + b + c + d
}
