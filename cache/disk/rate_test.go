package disk

import (
	"testing"
	"time"
)

// A disk that was slow once is tried again, although nothing was read from it meanwhile.
func TestASlowDiskIsTriedAgain(t *testing.T) {
	now := time.Unix(0, 0)
	r := Rate{Start: startPerByte}
	for range 100 {
		now = now.Add(time.Millisecond)
		r.Learn(now, 100*startPerByte)
	}
	if got := r.At(now); got < 90*startPerByte {
		t.Fatalf("%v after slow reads alone", got)
	}
	if got := r.At(now.Add(10 * forgetAfter)); got > 1.2*startPerByte {
		t.Errorf("%v long after the last slow read", got)
	}
	for range 100 {
		now = now.Add(time.Millisecond)
		r.Learn(now, startPerByte/4)
	}
	if got := r.At(now.Add(time.Hour)); got > startPerByte/3 {
		t.Errorf("%v: a fast disk was forgotten", got)
	}
}
