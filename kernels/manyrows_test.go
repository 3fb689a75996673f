package kernels

import (
	"slices"
	"testing"
	"time"
)

func milliseconds(ms ...int) (times []time.Duration) {
	for _, n := range ms {
		times = append(times, time.Duration(n)*time.Millisecond)
	}
	return times
}

func TestFasterByTheMedian(t *testing.T) {
	for name, c := range map[string]struct {
		a, b []time.Duration
		want bool
	}{
		"faster":                {milliseconds(2, 2, 2), milliseconds(3, 3, 3), true},
		"slower":                {milliseconds(3, 3, 3), milliseconds(2, 2, 2), false},
		"equal":                 {milliseconds(2, 2, 2), milliseconds(2, 2, 2), false},
		"faster but for one":    {milliseconds(2, 2, 2, 2, 9000), milliseconds(3, 3, 3, 3, 3), true},
		"slower but for one":    {milliseconds(3, 3, 0, 3, 3), milliseconds(2, 2, 2, 2, 2), false},
		"the other has one":     {milliseconds(3, 3, 3, 3, 3), milliseconds(2, 2, 9000, 2, 2), false},
		"in any order":          {milliseconds(9, 1, 2, 8, 3), milliseconds(4, 4, 4, 4, 4), true},
		"slower with one turn":  {milliseconds(3), milliseconds(2), false},
		"an even number: lower": {milliseconds(1, 9), milliseconds(2, 2), true},
	} {
		a := slices.Clone(c.a)
		if got := faster(c.a, c.b); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if !slices.Equal(a, c.a) {
			t.Errorf("%s: the times are changed to %v", name, c.a)
		}
	}
}

// TestRaceByTurns: both run equally often, by turns, and the first time of each does not count.
func TestRaceByTurns(t *testing.T) {
	var order []byte
	slow := func() {
		if order = append(order, 'a'); len(order) > 2 {
			time.Sleep(2 * time.Millisecond)
		} else {
			time.Sleep(50 * time.Millisecond)
		}
	}
	a, b := race(3, slow, func() { order = append(order, 'b') })
	if string(order) != "abababab" || len(a) != 3 || len(b) != 3 {
		t.Errorf("ran %s, %d and %d times", order, len(a), len(b))
	}
	if slices.Min(a) < 2*time.Millisecond || faster(a, b) || !faster(b, a) {
		t.Errorf("times %v and %v", a, b)
	}
}

// TestFasterSetOfTwo gives sets of this machine an alternative that has their bits and
// takes longer.
func TestFasterSetOfTwo(t *testing.T) {
	for _, s := range vectorSets() {
		if s.Round == nil {
			continue
		}
		slow := *s
		slow.MatMul = func(dst []float32, dstStride int, m *Matrix, x Input, n, r0, r1 int) {
			time.Sleep(20 * time.Millisecond)
			s.MatMul(dst, dstStride, m, x, n, r0, r1)
		}
		fast := s.withManyRows("these", &slow, "those")
		if fast.Alternative.Alternative != fast || fast.Alternative.Name != s.Name {
			t.Fatalf("%s: the alternative is %+v", s.Name, fast.Alternative)
		}
		for _, from := range []*Set{fast, fast.Alternative} {
			if got := from.Faster(Q4_0); got.ManyRows != "these" {
				t.Errorf("%s: from %s the faster is %s", s.Name, from.ManyRows, got.ManyRows)
			}
		}
		if got := fast.Alternative.Faster(F16); got != fast.Alternative {
			t.Errorf("%s: weights that it does not round for were timed", s.Name)
		}
	}
	if s := Sets()[len(Sets())-1]; s.Faster(Q4_0) != s {
		t.Error("ref has an alternative")
	}
}

func BenchmarkFaster(b *testing.B) {
	s := Best()
	if s.Round == nil {
		b.Skip("no set rounds here")
	}
	two := s.withManyRows("these", s, "those")
	for b.Loop() {
		two.Faster(Q4_K)
	}
}
