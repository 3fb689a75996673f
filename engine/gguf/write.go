package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// writer keeps the first error and counts bytes.
type writer struct {
	to  *bufio.Writer
	at  int
	err error
}

func (w *writer) bytes(b []byte) {
	if w.err == nil {
		_, w.err = w.to.Write(b)
		w.at += len(b)
	}
}

func (w *writer) u32(n uint32) { w.bytes(binary.LittleEndian.AppendUint32(nil, n)) }
func (w *writer) u64(n int)    { w.bytes(binary.LittleEndian.AppendUint64(nil, uint64(n))) }

func (w *writer) string(s string) {
	w.u64(len(s))
	w.bytes([]byte(s))
}

// pad fills up to a multiple of alignment.
func (w *writer) pad(alignment int) {
	if rest := w.at % alignment; rest != 0 {
		w.bytes(make([]byte, alignment-rest))
	}
}

// Write writes f as one GGUF file of version 3. It holds one tensor's bytes in
// memory at a time. done, if not nil, is called after each tensor.
func Write(to io.Writer, f *File, done func(t *Tensor)) error {
	w := &writer{to: bufio.NewWriterSize(to, 1<<20)}
	alignment := alignmentDefault
	if n, ok, err := f.Uint("general.alignment"); err != nil {
		return err
	} else if ok {
		alignment = int(n)
	}
	w.bytes([]byte("GGUF"))
	w.u32(3)
	w.u64(len(f.Tensors))
	w.u64(len(f.keys))
	for _, key := range f.keys {
		w.string(key)
		w.value(f.values[key])
	}
	offset := 0
	for i := range f.Tensors {
		t := &f.Tensors[i]
		w.string(t.Name)
		w.u32(uint32(len(t.Dims)))
		for _, n := range t.Dims {
			w.u64(n)
		}
		w.u32(uint32(t.Type))
		w.u64(offset)
		offset += (t.bytes() + alignment - 1) / alignment * alignment
	}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		w.pad(alignment)
		data := t.Bytes()
		if w.err == nil && len(data) != t.bytes() {
			return fmt.Errorf("%s: tensor %s: could not be made: it holds a number that is not finite", f.name, t.Name)
		}
		w.bytes(data)
		f.Release(t.Data)
		if done != nil && w.err == nil {
			done(t)
		}
	}
	if w.err == nil {
		w.err = w.to.Flush()
	}
	return w.err
}

func (w *writer) value(v value) {
	w.u32(uint32(v.kind))
	switch v.kind {
	case kindString:
		w.u64(len(v.raw))
	case kindArray:
		w.u32(uint32(v.elem))
		w.u64(v.count)
	}
	w.bytes(v.raw)
}
