package upstream

import "hash/maphash"

// prefixes remembers which beginnings of prompts a server was given, as hashes of
// their blocks, each chained with the one before. It holds at most 2·prefixesMax
// blocks: those seen last, and some older ones.
type prefixes struct{ young, old map[uint64]struct{} }

const (
	prefixesMax  = 16384
	prefixBytes  = 512 // of a block
	prefixBlocks = 512 // of one prompt
)

var prefixSeed = maphash.MakeSeed()

// blocksOf are the chained hashes of a prompt's full blocks.
func blocksOf(salt string, text []byte) []uint64 {
	n := min(len(text)/prefixBytes, prefixBlocks)
	if n == 0 {
		return nil
	}
	all := make([]uint64, n)
	var h maphash.Hash
	h.SetSeed(prefixSeed)
	h.WriteString(salt)
	for i := range all {
		h.Write(text[i*prefixBytes : (i+1)*prefixBytes])
		all[i] = h.Sum64()
	}
	return all
}

// match is the share of a prompt of so many bytes that begins like one of before.
func (p *prefixes) match(blocks []uint64, bytes int) float64 {
	n := 0
	for _, b := range blocks {
		if _, ok := p.young[b]; !ok {
			if _, ok = p.old[b]; !ok {
				break
			}
		}
		n++
	}
	return float64(n*prefixBytes) / float64(max(1, bytes))
}

// add remembers a prompt.
func (p *prefixes) add(blocks []uint64) {
	for _, b := range blocks {
		if len(p.young) >= prefixesMax || p.young == nil {
			p.old, p.young = p.young, make(map[uint64]struct{}, prefixesMax)
		}
		p.young[b] = struct{}{}
	}
}
