//go:build !unix

package kerneltest

import "testing"

func (c *checker) outside(t *testing.T) { t.Skip("no pages that fault on this system") }
