//go:build !unix

package repack

import (
	"errors"
	"os"
)

// lockPart is not supported: it needs locks that end with their process.
func lockPart(string) (*os.File, error) { return nil, errors.ErrUnsupported }
