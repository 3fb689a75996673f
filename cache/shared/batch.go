package shared

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/forebay-io/forebay/cache/hitmap"
)

// blockBytes is the size of a block in Redis.
const blockBytes = 6

// seal encrypts block hashes. Its result is cut to blockBytes, so two of a million
// blocks are taken for each other with a probability of one in 280 million.
type seal struct{ block cipher.Block }

func newSeal(secret []byte) seal {
	key := sha256.Sum256(append([]byte("forebay blocks\x00"), secret...))
	block, err := aes.NewCipher(key[:16])
	if err != nil {
		panic(err) // the key has a right length
	}
	return seal{block}
}

// hash works in buf, which would otherwise be allocated each time.
func (s seal) hash(h uint64, buf *[aes.BlockSize]byte) uint64 {
	*buf = [aes.BlockSize]byte{}
	binary.LittleEndian.PutUint64(buf[:], h)
	s.block.Encrypt(buf[:], buf[:])
	return binary.LittleEndian.Uint64(buf[:]) >> (64 - 8*blockBytes)
}

// batch is some changes of one replica's blocks, or all of its blocks.
//
//	epoch, number   8 bytes each
//	runs            count<<1 | evicted as a varint, then count blocks
type batch struct {
	epoch, number uint64
	changes       []hitmap.Change // sealed
}

func (b *batch) append(to []byte) []byte {
	to = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(to, b.epoch), b.number)
	for rest := b.changes; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Evicted == rest[0].Evicted {
			n++
		}
		head := uint64(n) << 1
		if rest[0].Evicted {
			head |= 1
		}
		to = binary.AppendUvarint(to, head)
		for _, c := range rest[:n] {
			var buf [8]byte
			binary.LittleEndian.PutUint64(buf[:], c.Hash)
			to = append(to, buf[:blockBytes]...)
		}
		rest = rest[n:]
	}
	return to
}

var errBatch = errors.New("a batch of blocks cannot be read: is another version of forebay running?")

// readBatch reads what append wrote. It never makes more of it than its bytes hold.
func readBatch(text string) (b batch, err error) {
	if len(text) < 16 {
		return b, errBatch
	}
	rest := []byte(text)
	b.epoch, b.number = binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:])
	for rest = rest[16:]; len(rest) > 0; {
		head, n := binary.Uvarint(rest)
		if n <= 0 || head>>1 > uint64(len(rest)-n)/blockBytes {
			return b, errBatch
		}
		rest = rest[n:]
		for range head >> 1 {
			var buf [8]byte
			copy(buf[:], rest[:blockBytes])
			rest = rest[blockBytes:]
			b.changes = append(b.changes, hitmap.Change{Hash: binary.LittleEndian.Uint64(buf[:]), Evicted: head&1 == 1})
		}
	}
	return b, nil
}
