package avx512amx_test

import (
	"testing"

	"github.com/forebay-io/forebay/kernels/kerneltest"
)

func TestSet(t *testing.T) { kerneltest.Run(t, "avx512amx") }
