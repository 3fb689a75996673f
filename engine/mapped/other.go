//go:build !unix

package mapped

import "os"

// mapFile reads a regular file into memory, because this system has no mapping.
func mapFile(path string) (data []byte, unmap func() error, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if err := checkRegular(path, info); err != nil {
		return nil, nil, err
	}
	data, err = os.ReadFile(path)
	return data, func() error { return nil }, err
}

func dropResident([]byte) {}
