package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Draft collects the metadata and tensors of a File that is not read from a GGUF
// file: a model in another format, or with other tensor types.
type Draft struct {
	file File
	err  error
}

// NewDraft returns an empty Draft. Errors call the File name.
func NewDraft(name string) *Draft {
	return &Draft{file: File{name: name, values: map[string]value{}, tensors: map[string]int{}}}
}

// Copy copies all metadata of f.
func (d *Draft) Copy(f *File) {
	for _, key := range f.keys {
		d.set(key, f.values[key])
	}
}

// Set sets the value of a key: a string, bool, float32, uint32, int32 or uint64,
// or a slice of string, float32, int32, uint32 or bool.
func (d *Draft) Set(key string, v any) {
	var out value
	switch v := v.(type) {
	case string:
		out = value{kind: kindString, raw: []byte(v)}
	case []string:
		out = value{kind: kindArray, elem: kindString, count: len(v)}
		for _, s := range v {
			out.raw = binary.LittleEndian.AppendUint64(out.raw, uint64(len(s)))
			out.raw = append(out.raw, s...)
		}
	case []float32:
		out = arrayOf(kindF32, v)
	case []int32:
		out = arrayOf(kindI32, v)
	case []uint32:
		out = arrayOf(kindU32, v)
	case []bool:
		out = arrayOf(kindBool, v)
	case bool:
		out = scalarOf(kindBool, v)
	case float32:
		out = scalarOf(kindF32, v)
	case uint32:
		out = scalarOf(kindU32, v)
	case int32:
		out = scalarOf(kindI32, v)
	case uint64:
		out = scalarOf(kindU64, v)
	default:
		panic(fmt.Sprintf("gguf: a value of type %T", v))
	}
	d.set(key, out)
}

func scalarOf(k kind, v any) value {
	raw, _ := binary.Append(nil, binary.LittleEndian, v)
	return value{kind: k, raw: raw}
}

func arrayOf[T any](k kind, vs []T) value {
	raw, _ := binary.Append(nil, binary.LittleEndian, vs)
	return value{kind: kindArray, elem: k, count: len(vs), raw: raw}
}

func (d *Draft) set(key string, v value) {
	if _, again := d.file.values[key]; !again {
		d.file.keys = append(d.file.keys, key)
	}
	d.file.values[key] = v
}

// Add adds a tensor, which must have Data or Make. File returns the first error.
func (d *Draft) Add(t Tensor) {
	l, known := layoutOf(t.Type)
	elements := 1
	for _, n := range t.Dims {
		if n < 1 || elements > math.MaxInt/n {
			elements = 0
			break
		}
		elements *= n
	}
	_, twice := d.file.tensors[t.Name]
	switch {
	case d.err != nil:
	case t.Name == "" || len(t.Name) > tensorNameBytesMax || twice:
		d.err = fmt.Errorf("%s: tensor %q: has no name, one of more than %d bytes, or another's", d.file.name, t.Name, tensorNameBytesMax)
	case !known || len(t.Dims) == 0 || len(t.Dims) > dimsMax || elements < 1 || t.Dims[0]%l.elements != 0:
		d.err = fmt.Errorf("%s: tensor %s: has the type %s and the shape %v, which do not fit", d.file.name, t.Name, t.Type, t.Dims)
	case t.Make == nil && len(t.Data) != t.bytes():
		d.err = fmt.Errorf("%s: tensor %s: has %d bytes; type and shape ask for %d", d.file.name, t.Name, len(t.Data), t.bytes())
	}
	if d.err != nil {
		return
	}
	d.file.tensors[t.Name] = len(d.file.Tensors)
	d.file.Tensors = append(d.file.Tensors, t)
	d.file.sizeBytes += t.bytes()
}

// File returns the finished File. Its digest covers identity, the metadata and the
// Data of tensors. Its Close calls closers. mapped means that Data lies in
// mappings, so that Release can free memory.
func (d *Draft) File(identity string, mapped bool, closers ...func() error) (*File, error) {
	if d.err != nil {
		return nil, d.err
	}
	f := d.file
	f.identity, f.mapped, f.closers = identity, mapped, closers
	for _, key := range f.keys {
		v := f.values[key]
		f.header = append(f.header, key...)
		f.header = append(f.header, v.raw...)
	}
	return &f, nil
}
