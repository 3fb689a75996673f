package gguf

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

// The keys of one part of a split model.
const (
	keySplitNo      = "split.no" // from 0
	keySplitCount   = "split.count"
	keySplitTensors = "split.tensors.count" // in all parts
)

// splitName matches the end of a part's path: its number, from 1, and the number
// of parts.
var splitName = regexp.MustCompile(`-([0-9]{5})-of-([0-9]{5})\.gguf$`)

// partsMax is the most parts of a model, the format's own limit on names.
const partsMax = 99999

// join returns one File of f, opened from path, and the other parts of its model
// in the same folder. It takes ownership of f.
func (f *File) join(path string) (joined *File, err error) {
	parts := []*File{f}
	defer func() {
		if err != nil {
			for _, p := range parts {
				err = errors.Join(err, p.Close())
			}
		}
	}()
	count, err := f.splitNumber(keySplitCount, partsMax)
	if err != nil {
		return nil, err
	}
	if count <= 1 {
		f.drop(keySplitNo, keySplitCount, keySplitTensors)
		return f, nil
	}
	at := splitName.FindStringSubmatchIndex(path)
	if at == nil {
		return nil, fmt.Errorf("%s: is one of %d parts of a model, so its name must end in -00001-of-%05d.gguf and so on, with the others beside it", path, count, count)
	}
	if said := path[at[4]:at[5]]; said != fmt.Sprintf("%05d", count) {
		return nil, fmt.Errorf("%s: the name says %s parts, and the key %s says %d", path, said, keySplitCount, count)
	}
	own, _ := strconv.Atoi(path[at[2]:at[3]])
	if own < 1 || own > count {
		return nil, fmt.Errorf("%s: the name says part %d, and the parts are 1 to %d", path, own, count)
	}
	first := *f
	for no := range count {
		p := f
		if no+1 != own {
			name := fmt.Sprintf("%s%05d%s", path[:at[2]], no+1, path[at[3]:])
			if p, err = openOne(name); err != nil {
				return nil, fmt.Errorf("part %d of %d of %s: %w", no+1, count, path, err)
			}
			parts = append(parts, p)
		}
		if err := p.checkPart(no, count); err != nil {
			return nil, err
		}
		if no == 0 {
			first = *p
			first.Tensors, first.tensors, first.closers, first.sizeBytes, first.header = nil, map[string]int{}, nil, 0, nil
		}
		if err := first.append(p); err != nil {
			return nil, err
		}
	}
	tensors, err := f.splitNumber(keySplitTensors, tensorsMax)
	if err == nil && tensors != len(first.Tensors) {
		err = fmt.Errorf("%s: the %d parts have %d tensors, and the key %s says %d", path, count, len(first.Tensors), keySplitTensors, tensors)
	}
	if err != nil {
		return nil, err
	}
	first.drop(keySplitNo, keySplitCount, keySplitTensors)
	return &first, nil
}

// splitNumber reads an integer key that every part must have.
func (f *File) splitNumber(key string, most uint64) (int, error) {
	n, ok, err := f.Uint(key)
	switch {
	case err != nil:
		return 0, err
	case !ok:
		return 0, fmt.Errorf("%s: key %s is missing", f.name, key)
	case n > most:
		return 0, fmt.Errorf("%s: key %s: is %d; the most allowed is %d", f.name, key, n, most)
	}
	return int(n), nil
}

// checkPart checks that f is part no of count.
func (f *File) checkPart(no, count int) error {
	for key, want := range map[string]int{keySplitNo: no, keySplitCount: count} {
		n, err := f.splitNumber(key, partsMax)
		if err == nil && n != want {
			err = fmt.Errorf("%s: key %s: is %d, but the file's place among the parts wants %d", f.name, key, n, want)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// append adds a part's tensors.
func (f *File) append(part *File) error {
	for _, t := range part.Tensors {
		if _, twice := f.tensors[t.Name]; twice {
			return fmt.Errorf("%s: tensor %s is in another part too", part.name, t.Name)
		}
		f.tensors[t.Name] = len(f.Tensors)
		f.Tensors = append(f.Tensors, t)
	}
	f.closers = append(f.closers, part.closers...)
	f.sizeBytes += part.sizeBytes
	f.header = append(f.header, part.header...)
	return nil
}

// drop removes keys.
func (f *File) drop(keys ...string) {
	gone := map[string]bool{}
	for _, key := range keys {
		gone[key] = true
		delete(f.values, key)
	}
	kept := f.keys[:0:0]
	for _, key := range f.keys {
		if !gone[key] {
			kept = append(kept, key)
		}
	}
	f.keys = kept
}
