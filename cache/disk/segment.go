package disk

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/zeebo/xxh3"
)

// ID names a block: two chained hashes of its salt, the tokens before it and its own.
type ID struct{ Hash, Check uint64 }

// A segment is a header and records. Numbers are little-endian.
//
//	header  magic, length of a block (4 bytes), sealed or not (1 byte), zeros up to headerBytes
//	record  Hash, Check, checksum of what follows, nonce, the block's bytes, tag
//
// Nonce and tag are those of AES-GCM; without a key both are empty.
const (
	magic       = "forebay-kv-1"
	headerBytes = 64
	idBytes     = 24
)

// format is what all records of a store have in common.
type format struct {
	blockBytes int
	sealer     cipher.AEAD // nil without a key
}

func (f *format) recordBytes() int {
	n := idBytes + f.blockBytes
	if f.sealer != nil {
		n += f.sealer.NonceSize() + f.sealer.Overhead()
	}
	return n
}

func (f *format) header() []byte {
	b := make([]byte, headerBytes)
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[len(magic):], uint32(f.blockBytes))
	if f.sealer != nil {
		b[len(magic)+4] = 1
	}
	return b
}

// record appends a block to b.
func (f *format) record(b []byte, id ID, block []byte) []byte {
	b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, id.Hash), id.Check)
	at := len(b)
	b = append(b, make([]byte, 8)...)
	if f.sealer == nil {
		b = append(b, block...)
	} else {
		nonce := make([]byte, f.sealer.NonceSize())
		_, _ = rand.Read(nonce) // never fails
		b = f.sealer.Seal(append(b, nonce...), nonce, block, b[at-16:at])
	}
	binary.LittleEndian.PutUint64(b[at:], xxh3.Hash(b[at+8:]))
	return b
}

var errDamaged = errors.New("the record is damaged, or of another key")

// block takes the block out of a record, in the record's own memory.
func (f *format) block(record []byte, id ID) ([]byte, error) {
	sealed := record[idBytes:]
	if f.id(record) != id || binary.LittleEndian.Uint64(record[16:]) != xxh3.Hash(sealed) {
		return nil, errDamaged
	}
	if f.sealer == nil {
		return sealed, nil
	}
	n := f.sealer.NonceSize()
	plain, err := f.sealer.Open(sealed[n:n], sealed[:n], sealed[n:], record[:16])
	if err != nil {
		return nil, errDamaged
	}
	return plain, nil
}

func (f *format) id(record []byte) ID {
	return ID{binary.LittleEndian.Uint64(record), binary.LittleEndian.Uint64(record[8:])}
}

// place is where a block's record is.
type place struct {
	segment *segment
	offset  int64
}

// segment is one file. Its fields are guarded by Store.mu, but for file.
type segment struct {
	file  *os.File // read by the reader, written by the writer
	name  string
	bytes int64
	ids   []ID
	gone  bool // removed from the index; its file is closed after the last read
	uses  int  // reads under way
}

// openSegment reads the ids of a segment's whole records.
func openSegment(path string, f *format) (*segment, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	s := &segment{file: file, name: path, bytes: headerBytes}
	if err := s.readIDs(f); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return s, nil
}

func (s *segment) readIDs(f *format) error {
	header := make([]byte, headerBytes)
	if _, err := s.file.ReadAt(header, 0); err != nil || string(header) != string(f.header()) {
		return fmt.Errorf("%s is no segment of this model, or of another key", s.name)
	}
	size := int64(f.recordBytes())
	head := make([]byte, idBytes)
	for {
		last := make([]byte, 1) // a record that was not written to its end does not count
		if _, err := s.file.ReadAt(last, s.bytes+size-1); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if _, err := s.file.ReadAt(head, s.bytes); err != nil {
			return err
		}
		s.ids = append(s.ids, f.id(head))
		s.bytes += size
	}
}
