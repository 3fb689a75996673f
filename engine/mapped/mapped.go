// Package mapped maps regular files into memory.
//
// Goal: Open never blocks on a FIFO or a device, and its error says what the path
// is. Non-goals: the meaning of the bytes, and writing.
//
// Ownership: the opener closes a File and reads no byte of it afterwards. If a
// file shrinks while it is mapped, reading it ends the process.
package mapped

import (
	"fmt"
	"io/fs"
)

// File is an open file's bytes.
type File struct {
	// Data is the whole file. Read only.
	Data  []byte
	unmap func() error
}

// Open maps the regular file at path, which must not be empty.
func Open(path string) (*File, error) {
	data, unmap, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	return &File{data, unmap}, nil
}

// Close unmaps the file. It may be called twice.
func (f *File) Close() error {
	if f.unmap == nil {
		return nil
	}
	unmap := f.unmap
	*f = File{}
	return unmap()
}

// Release frees the memory of data, a part of a File that was copied elsewhere.
// data stays readable: the next read loads it from the file again. Without
// memory mapping it does nothing.
func Release(data []byte) { dropResident(data) }

// checkRegular refuses a path that is not a regular file, before it is opened.
func checkRegular(path string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return fmt.Errorf("%s: is a directory; name a file in it", path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: is not a regular file but %s", path, info.Mode().Type())
	case info.Size() == 0:
		return fmt.Errorf("%s: is empty", path)
	}
	return nil
}

// HugePages advises the system to use huge pages for data. The system may ignore
// it; then reads are slower and nothing else changes.
func HugePages(data []byte) { adviseHuge(data) }
