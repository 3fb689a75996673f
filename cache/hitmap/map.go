package hitmap

import (
	"fmt"
	"math/bits"
)

// ReplicasMax is how many replicas a Map tells apart.
const ReplicasMax = 256

// BlocksMost is the largest limit of a Map.
const BlocksMost = 1 << 30

// Map says which of many replicas hold a block, as far as is known. It is bounded:
// a new block takes the place of the one that was not added or used for longest.
//
//	entries  a block each, in at most 64 bytes: its hash, a bit for each replica,
//	         and three links: to the next in its bucket, and in the order of use
//	buckets  the first entry of each chain
//	slots    the bit of each replica
//
// A replica begins a new epoch when its engine starts. It then gets another slot,
// and the old one retires: no entry has to be visited, and all old claims are void
// at once. A retired slot is given out again after a sweep over all entries, which
// comes only when no other slot is free.
//
// Memory is claimed when the Map is made and used as it fills; nothing is allocated
// after that but for new replicas. Match reads alone: several goroutines may call it
// while none calls another method.
type Map struct {
	entries []entry  // entries[0] ends every list
	buckets []uint32 // a power of two of them
	shift   uint8    // of a hash to its bucket
	made    uint32   // entries that were ever used; the others are still zero
	free    uint32   // entries that are not used any more, linked by chained
	held    int      // entries that are in use

	slots   map[string]Slot
	names   [ReplicasMax]string // "" for a slot that no live replica has
	claims  [ReplicasMax]int    // blocks of each live replica
	live    holders
	retired holders
	evicted uint64
}

// Slot is the number of a live replica in a Map.
type Slot uint8

// holders is a set of slots.
type holders [ReplicasMax / 64]uint64

func (h *holders) add(s Slot)      { h[s/64] |= 1 << (s % 64) }
func (h *holders) remove(s Slot)   { h[s/64] &^= 1 << (s % 64) }
func (h *holders) has(s Slot) bool { return h[s/64]>>(s%64)&1 == 1 }

// entry is what is known of one block.
type entry struct {
	hash    uint64
	held    holders // of retired slots too
	chained uint32
	newer   uint32
	older   uint32
}

// none ends every list. entries[none] is the ends of the order of use: its older is
// the newest entry, and its newer the oldest.
const none = 0

// NewMap makes an empty map of at most blocksMax blocks.
func NewMap(blocksMax int) (*Map, error) {
	if blocksMax < 1 || blocksMax > BlocksMost {
		return nil, fmt.Errorf("hitmap: a map of %d blocks; give 1 to %d", blocksMax, BlocksMost)
	}
	width := bits.Len(uint(blocksMax - 1))
	return &Map{
		entries: make([]entry, blocksMax+1), buckets: make([]uint32, 1<<width), shift: uint8(64 - width),
		slots: map[string]Slot{},
	}, nil
}

// Begin starts a new epoch of a replica, which holds nothing then. It returns false
// if there are ReplicasMax others.
func (m *Map) Begin(replica string) (Slot, bool) {
	m.End(replica)
	s, ok := m.freeSlot()
	if !ok && m.retired != (holders{}) {
		m.sweep()
		s, ok = m.freeSlot()
	}
	if !ok {
		return 0, false
	}
	m.slots[replica], m.names[s] = s, replica
	m.live.add(s)
	return s, true
}

// End forgets a replica and all its claims.
func (m *Map) End(replica string) {
	s, ok := m.slots[replica]
	if !ok {
		return
	}
	delete(m.slots, replica)
	m.names[s], m.claims[s] = "", 0
	m.live.remove(s)
	m.retired.add(s)
}

// Slot is the slot of a replica that has begun.
func (m *Map) Slot(replica string) (Slot, bool) {
	s, ok := m.slots[replica]
	return s, ok
}

// Name is the replica that has the slot, "" for none.
func (m *Map) Name(s Slot) string { return m.names[s] }

func (m *Map) freeSlot() (Slot, bool) {
	for i := range m.live {
		if taken := m.live[i] | m.retired[i]; taken != ^uint64(0) {
			return Slot(64*i + bits.TrailingZeros64(^taken)), true
		}
	}
	return 0, false
}

// sweep takes retired slots out of all entries, so that they can be given out.
func (m *Map) sweep() {
	for id := m.entries[none].newer; id != none; {
		e := &m.entries[id]
		next := e.newer
		if m.holders(e) == (holders{}) {
			m.remove(id)
		} else {
			e.held = m.holders(e)
		}
		id = next
	}
	m.retired = holders{}
}

// holders are the live holders of e.
func (m *Map) holders(e *entry) (h holders) {
	for i := range h {
		h[i] = e.held[i] & m.live[i]
	}
	return h
}

// Apply takes one change of a live replica's blocks.
func (m *Map) Apply(s Slot, c Change) {
	if !m.live.has(s) {
		return
	}
	id := m.find(c.Hash)
	switch {
	case c.Evicted && id == none:
	case c.Evicted:
		m.release(id, s)
	case id == none:
		e := &m.entries[m.insert(c.Hash)]
		e.held.add(s)
		m.claims[s]++
	default:
		m.touch(id)
		if e := &m.entries[id]; !e.held.has(s) {
			e.held.add(s)
			m.claims[s]++
		}
	}
}

// release takes a replica off a block.
func (m *Map) release(id uint32, s Slot) {
	e := &m.entries[id]
	if !e.held.has(s) {
		return
	}
	e.held.remove(s)
	m.claims[s]--
	if m.holders(e) == (holders{}) {
		m.remove(id)
	}
}

// Use notes that a prompt's blocks were of use. A block becomes newer than those
// after it, so that a prompt is forgotten from its end, as engines evict it.
func (m *Map) Use(blocks []uint64) {
	for i := len(blocks) - 1; i >= 0; i-- {
		if id := m.find(blocks[i]); id != none {
			m.touch(id)
		}
	}
}

// Hold is how many leading blocks of a prompt a replica holds.
type Hold struct {
	Slot   Slot
	Blocks int
}

// Match appends the replicas that hold leading blocks of a prompt to into, those that
// hold the most first. blocks are the prompt's chained hashes. An engine that holds a
// block holds all before it, so the last block that is known of a replica counts for
// those before it, even if the map does not have them.
func (m *Map) Match(blocks []uint64, into []Hold) []Hold {
	missing := m.live
	var ids [matchGroup]uint32
	for end := len(blocks); end > 0 && missing != (holders{}); end -= matchGroup {
		group := blocks[max(0, end-matchGroup):end]
		m.findAll(group, &ids)
		for i := len(group) - 1; i >= 0; i-- {
			if ids[i] == none {
				continue
			}
			for w, held := range m.entries[ids[i]].held {
				fresh := held & missing[w]
				missing[w] &^= fresh
				for ; fresh != 0; fresh &= fresh - 1 {
					into = append(into, Hold{Slot(64*w + bits.TrailingZeros64(fresh)), end - len(group) + i + 1})
				}
			}
		}
	}
	return into
}

// matchGroup is how many blocks are looked up together. A large map is in no cache, so the
// memory is asked for all of them before the first has answered.
const matchGroup = 32

// findAll finds the blocks of a group.
func (m *Map) findAll(blocks []uint64, ids *[matchGroup]uint32) {
	for i, hash := range blocks {
		ids[i] = *m.bucket(hash)
	}
	var found [matchGroup]uint64
	for i := range blocks {
		found[i] = m.entries[ids[i]].hash // without a branch that waits for it
	}
	for i, hash := range blocks {
		id, at := ids[i], found[i]
		for id != none && at != hash {
			id = m.entries[id].chained
			at = m.entries[id].hash
		}
		ids[i] = id
	}
}

// Len counts the blocks in the map, Claims those of one replica.
func (m *Map) Len() int          { return m.held }
func (m *Map) Claims(s Slot) int { return m.claims[s] }

// Evicted counts the blocks that others took the place of.
func (m *Map) Evicted() uint64 { return m.evicted }

// bucket mixes the hash: callers may keep only hashes with certain low bits.
func (m *Map) bucket(hash uint64) *uint32 {
	return &m.buckets[hash*0x9e3779b97f4a7c15>>m.shift]
}

func (m *Map) find(hash uint64) uint32 {
	id := *m.bucket(hash)
	for id != none && m.entries[id].hash != hash {
		id = m.entries[id].chained
	}
	return id
}

// insert adds a block that nobody holds yet, as the newest.
func (m *Map) insert(hash uint64) uint32 {
	if m.free == none && int(m.made) == len(m.entries)-1 {
		m.remove(m.entries[none].newer)
		m.evicted++
	}
	id := m.free
	if id != none {
		m.free = m.entries[id].chained
	} else {
		m.made++
		id = m.made
	}
	b := m.bucket(hash)
	m.entries[id] = entry{hash: hash, chained: *b}
	*b = id
	m.held++
	m.link(id)
	return id
}

// remove takes a block out of the map.
func (m *Map) remove(id uint32) {
	e := &m.entries[id]
	for w, held := range m.holders(e) {
		for ; held != 0; held &= held - 1 {
			m.claims[64*w+bits.TrailingZeros64(held)]--
		}
	}
	at := m.bucket(e.hash)
	for *at != id {
		at = &m.entries[*at].chained
	}
	*at = e.chained
	m.unlink(id)
	m.held--
	*e = entry{chained: m.free}
	m.free = id
}

// touch makes a block the newest.
func (m *Map) touch(id uint32) {
	if m.entries[none].older != id {
		m.unlink(id)
		m.link(id)
	}
}

func (m *Map) link(id uint32) {
	ends, e := &m.entries[none], &m.entries[id]
	e.newer, e.older = none, ends.older
	m.entries[ends.older].newer = id
	ends.older = id
}

func (m *Map) unlink(id uint32) {
	e := &m.entries[id]
	m.entries[e.newer].older = e.older
	m.entries[e.older].newer = e.newer
}
