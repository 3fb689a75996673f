//go:build !unix

package disk

import "os"

// lockFile only opens the file: here nothing keeps two processes apart.
func lockFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
}
