//go:build !unix

package engine

import (
	"errors"
	"fmt"
)

// fileStatus is not reliable enough on this system to keep weights by it.
func fileStatus(path string) (string, error) {
	return "", fmt.Errorf("status of %s: %w on this system", path, errors.ErrUnsupported)
}
