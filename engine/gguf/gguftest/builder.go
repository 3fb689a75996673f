// Package gguftest writes small GGUF files for tests: any metadata and tensors
// with Builder, and complete llama models with random weights with TinyModel. It
// checks nothing, so that tests can write malformed files.
package gguftest

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/forebay-io/forebay/kernels"
)

// Builder collects the parts of a file.
type Builder struct {
	Version   uint32 // 0 means 3
	Alignment int    // 0 means 32; written as general.alignment if it is set

	keys, directory, data bytes.Buffer
	keyCount, tensorCount uint64
}

var le = binary.LittleEndian

// valueTypes numbers the format's value types by Go type.
func valueType(v any) uint32 {
	switch v.(type) {
	case uint8:
		return 0
	case int8:
		return 1
	case uint16:
		return 2
	case int16:
		return 3
	case uint32:
		return 4
	case int32:
		return 5
	case float32:
		return 6
	case bool:
		return 7
	case string:
		return 8
	case uint64:
		return 10
	case int64:
		return 11
	case float64:
		return 12
	}
	panic(fmt.Sprintf("gguftest: a value of type %T", v))
}

func writeString(w *bytes.Buffer, s string) {
	_ = binary.Write(w, le, uint64(len(s)))
	w.WriteString(s)
}

func writeValue(w *bytes.Buffer, v any) {
	if s, ok := v.(string); ok {
		writeString(w, s)
		return
	}
	_ = binary.Write(w, le, v)
}

func writeArray[T any](w *bytes.Buffer, vs []T) {
	var zero T
	_ = binary.Write(w, le, uint32(9))
	_ = binary.Write(w, le, valueType(zero))
	_ = binary.Write(w, le, uint64(len(vs)))
	for _, v := range vs {
		writeValue(w, v)
	}
}

// Set adds a key. v is a scalar of the format, a string, or a slice of
// strings, float32, int32, uint32 or bool.
func (b *Builder) Set(key string, v any) *Builder {
	b.keyCount++
	writeString(&b.keys, key)
	switch vs := v.(type) {
	case []string:
		writeArray(&b.keys, vs)
	case []float32:
		writeArray(&b.keys, vs)
	case []int32:
		writeArray(&b.keys, vs)
	case []uint32:
		writeArray(&b.keys, vs)
	case []bool:
		writeArray(&b.keys, vs)
	default:
		_ = binary.Write(&b.keys, le, valueType(v))
		writeValue(&b.keys, v)
	}
	return b
}

// Raw adds a key with the given value type and bytes.
func (b *Builder) Raw(key string, valueType uint32, value []byte) *Builder {
	b.keyCount++
	writeString(&b.keys, key)
	_ = binary.Write(&b.keys, le, valueType)
	b.keys.Write(value)
	return b
}

// Tensor adds a tensor; its data follows the previous tensor's, aligned.
func (b *Builder) Tensor(name string, t kernels.Type, dims []int, data []byte) *Builder {
	b.pad()
	b.Entry(name, t, dims, uint64(b.data.Len()))
	b.data.Write(data)
	return b
}

// Entry adds only a directory entry, with the given offset.
func (b *Builder) Entry(name string, t kernels.Type, dims []int, offset uint64) *Builder {
	b.tensorCount++
	writeString(&b.directory, name)
	_ = binary.Write(&b.directory, le, uint32(len(dims)))
	for _, d := range dims {
		_ = binary.Write(&b.directory, le, uint64(d))
	}
	_ = binary.Write(&b.directory, le, uint32(t))
	_ = binary.Write(&b.directory, le, offset)
	return b
}

func (b *Builder) alignment() int {
	if b.Alignment == 0 {
		return 32
	}
	return b.Alignment
}

func (b *Builder) pad() { padTo(&b.data, b.alignment()) }

func padTo(w *bytes.Buffer, alignment int) {
	if rest := w.Len() % alignment; rest != 0 {
		w.Write(make([]byte, alignment-rest))
	}
}

// Bytes returns the file.
func (b *Builder) Bytes() []byte {
	if b.Alignment != 0 && !bytes.Contains(b.keys.Bytes(), []byte("general.alignment")) {
		b.Set("general.alignment", uint32(b.Alignment))
	}
	version := b.Version
	if version == 0 {
		version = 3
	}
	var w bytes.Buffer
	w.WriteString("GGUF")
	_ = binary.Write(&w, le, version)
	_ = binary.Write(&w, le, b.tensorCount)
	_ = binary.Write(&w, le, b.keyCount)
	w.Write(b.keys.Bytes())
	w.Write(b.directory.Bytes())
	if b.tensorCount > 0 {
		padTo(&w, b.alignment())
	}
	w.Write(b.data.Bytes())
	return w.Bytes()
}
