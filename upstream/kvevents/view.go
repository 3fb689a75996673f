package kvevents

import (
	"encoding/binary"
	"hash/maphash"
	"strings"
)

// view is what a server is known to hold.
type view struct {
	most   int              // blocks
	theirs map[uint64]block // by the server's hash, and the group
	ours   map[uint64]int32 // how many of theirs have a key
	size   int              // tokens of a block; 0 until the first
	whole  bool             // nothing that it holds is missing here
	// salts says that a block came whose salt was told: else prompts with one are not found.
	salts bool
	left  uint64 // blocks that there was no room for
	buf   []byte
}

type block struct {
	key uint64
	in  medium // where it is
}

// medium is a set of places.
type medium byte

const (
	inGPU medium = 1 << iota
	inHost
)

// seed keeps keys from being made equal on purpose.
var seed = maphash.MakeSeed()

// blockTokensMost bounds the tokens of a block.
const blockTokensMost = 1 << 14

// Shape is what the keys of a prompt depend on beside its tokens.
type Shape struct {
	Size   int  // tokens of a block
	Salted bool // the server gets a salt with each prompt
}

// Chain is a prompt's full blocks in one shape.
type Chain struct {
	Shape
	Keys []uint64
}

// NewChain makes the chain of a prompt; the salt counts only in a shape that has one.
func NewChain(tokens []int32, shape Shape, salt string) Chain {
	if !shape.Salted {
		salt = ""
	}
	return Chain{shape, keysOf(tokens, shape.Size, salt)}
}

func keysOf(tokens []int32, size int, salt string) []uint64 {
	keys := make([]uint64, len(tokens)/size)
	buf := make([]byte, 0, 8+4*size+len(salt))
	key := uint64(0)
	for i := range keys {
		buf = binary.LittleEndian.AppendUint64(buf[:0], key)
		for _, t := range tokens[i*size : (i+1)*size] {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(t))
		}
		if i == 0 {
			buf = append(buf, salt...)
		}
		key = maphash.Bytes(seed, buf)
		keys[i] = key
	}
	return keys
}

// clear forgets all. whole says that the server holds nothing either.
func (v *view) clear(whole bool) {
	v.theirs, v.ours = map[uint64]block{}, map[uint64]int32{}
	v.size, v.whole, v.salts = 0, whole, false
}

// match is how many of the keys are held from the first on.
func (v *view) match(keys []uint64) int {
	for i, k := range keys {
		if v.ours[k] == 0 {
			return i
		}
	}
	return len(keys)
}

// apply takes in an event. ok is false for one that cannot be understood.
func (v *view) apply(e *event) (ok bool) {
	switch e.kind {
	case nameStored:
		return v.stored(e)
	case nameRemoved:
		return v.removed(e)
	case nameCleared:
		size, salts := v.size, v.salts
		v.clear(true)
		v.size, v.salts = size, salts
	}
	return true // a kind of events that is not about the cache's contents
}

// place is where an event's blocks are; ok is false for a place that does not count.
func place(e *event) (in medium, ok bool) {
	name, is := e.medium.text()
	switch {
	case !is || string(name) == "GPU": // nil
		return inGPU, true
	case strings.HasPrefix(string(name), "CPU"):
		return inHost, true
	}
	return 0, false
}

// follows tells whether an event is of layers that a claim can be made for: those that
// look at the whole prompt.
func follows(e *event) bool {
	name, ok := e.spec.text()
	kind := string(name)
	return !ok || (strings.Contains(kind, "full") || strings.Contains(kind, "mla")) && !strings.Contains(kind, "sliding")
}

// groupOf is the group of layers of an event.
func groupOf(e *event) uint64 {
	if n, ok := e.group.integer(); ok {
		return n + 1
	}
	return 0
}

// id reads a hash of the server's.
func (v *view) id(group uint64, p *packed) (id uint64, ok bool) {
	b := binary.LittleEndian.AppendUint64(v.buf[:0], group)
	switch k, n := p.head(); k {
	case kindInt:
		b = binary.LittleEndian.AppendUint64(append(b, 'i'), n)
	case kindText:
		b = append(append(b, 't'), p.take(n)...)
	default:
		return 0, false
	}
	v.buf = b
	return maphash.Bytes(seed, b), !p.bad
}

// stored adds an event's blocks.
func (v *view) stored(e *event) bool {
	in, counts := place(e)
	if !counts || !follows(e) {
		return true
	}
	size, ok := e.size.integer()
	blocks, also := e.hashes.list()
	tokens, too := e.tokens.list()
	switch {
	case !ok || !also || !too || size < 1 || size > blockTokensMost:
		return false
	case blocks == 0:
		return true
	case uint64(tokens) != size*uint64(blocks) || v.size != 0 && v.size != int(size):
		v.whole = false // blocks of some layers that do not have one hash each
		return true
	}
	group, key, root := groupOf(e), uint64(0), false
	if p := e.parent; len(p.rest) == 0 || p.rest[0] == 0xc0 {
		root = true
	} else if id, ok := v.id(group, &p); !ok {
		return false
	} else if parent, known := v.theirs[id]; !known {
		v.whole = false
		return true
	} else {
		key = parent.key
	}
	extras := e.extras
	n, each := extras.list()
	each = each && n == blocks
	for i := range blocks {
		more, salted := "", false
		if each {
			one := extras.value()
			more, salted = extra(&one)
		} else if root && i == 0 {
			more, salted = extra(&e.salt)
		}
		if key, ok = v.chain(key, &e.tokens, int(size), more); !ok {
			return false
		}
		id, ok := v.id(group, &e.hashes)
		if !ok {
			return false
		}
		if root && i == 0 && salted {
			v.salts = true
		}
		v.size = int(size)
		v.add(id, key, in)
	}
	return true
}

// chain is the key of the block after one with the key; it reads the block's tokens.
func (v *view) chain(key uint64, tokens *packed, size int, more string) (next uint64, ok bool) {
	b := binary.LittleEndian.AppendUint64(v.buf[:0], key)
	for range size {
		t, ok := tokens.integer()
		if !ok {
			return 0, false
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	b = append(b, more...)
	v.buf = b
	return maphash.Bytes(seed, b), true
}

// add books that the server holds a block.
func (v *view) add(id, key uint64, in medium) {
	old, known := v.theirs[id]
	if known && old.key == key {
		v.theirs[id] = block{key, old.in | in}
		return
	}
	if known {
		v.drop(id, old.key)
	}
	if len(v.theirs) >= v.most {
		v.left++
		v.whole = false
		return
	}
	v.theirs[id] = block{key, in}
	v.ours[key]++
}

// drop forgets a block.
func (v *view) drop(id, key uint64) {
	delete(v.theirs, id)
	if v.ours[key]--; v.ours[key] <= 0 {
		delete(v.ours, key)
	}
}

// removed forgets an event's blocks.
func (v *view) removed(e *event) bool {
	in, counts := place(e)
	if !counts {
		return true
	}
	group := groupOf(e)
	n, ok := e.hashes.list()
	if !ok {
		return false
	}
	for range n {
		id, ok := v.id(group, &e.hashes)
		if !ok {
			return false
		}
		b, known := v.theirs[id]
		if b.in &^= in; !known {
			continue
		} else if b.in != 0 {
			v.theirs[id] = b
			continue
		}
		v.drop(id, b.key)
	}
	return true
}
