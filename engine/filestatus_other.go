//go:build !unix

package engine

import (
	"errors"
	"fmt"
)

// fileStatus is not known well enough here to keep weights by.
func fileStatus(path string) (string, error) {
	return "", fmt.Errorf("status of %s: %w on this system", path, errors.ErrUnsupported)
}
