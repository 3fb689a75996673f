package avx2int8_test

import (
	"testing"

	"github.com/forebay-io/forebay/kernels/kerneltest"
)

func TestSet(t *testing.T) { kerneltest.Run(t, "avx2int8") }
