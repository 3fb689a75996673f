// Package mapped gives the bytes of regular files without reading them first.
//
// Goal: opening never blocks on what is no file (a FIFO, a device), and its error
// says what stands there. Non-goals: what the bytes mean, and writing.
//
// Ownership: whoever opens a File closes it, and touches no byte of it afterwards.
// A file that shrinks while it is mapped ends the process when it is read.
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

// Close gives the mapping back. It may be called twice.
func (f *File) Close() error {
	if f.unmap == nil {
		return nil
	}
	unmap := f.unmap
	*f = File{}
	return unmap()
}

// Release gives back the memory of data, a part of a File that has been copied
// elsewhere. It stays readable: a touch reads it from the file again. Where the
// system has no mapping there is nothing to give back.
func Release(data []byte) { dropResident(data) }

// checkRegular refuses what cannot be read as a file before it is opened.
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

// HugePages asks for a mapping in huge pages, where the file system has any. It is
// advice; one that is refused costs time and nothing else.
func HugePages(data []byte) { adviseHuge(data) }
