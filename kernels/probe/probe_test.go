package probe

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestExpectedLoops asks the operating system what the processor has.
func TestExpectedLoops(t *testing.T) {
	info, err := os.ReadFile("/proc/cpuinfo")
	if runtime.GOARCH != "amd64" || err != nil {
		t.Skipf("nothing to compare with: %s, %v", runtime.GOARCH, err)
	}
	_, line, _ := strings.Cut(string(info), "\nflags")
	line, _, _ = strings.Cut(line, "\n")
	var want []string
	for _, c := range []struct{ flags, loop string }{
		{"avx2 fma", "fma_f32_avx2"}, {"avx512f avx512dq", "fma_f32_avx512"},
		{"avx512f avx512dq avx512_vnni", "dot_int8_avx512"}, {"avx512f avx512dq avx512_bf16", "dot_bf16_avx512"},
	} {
		lacks := func(flag string) bool { return !slices.Contains(strings.Fields(line), flag) }
		if !slices.ContainsFunc(strings.Fields(c.flags), lacks) {
			want = append(want, c.loop)
		}
	}
	var got []string
	for _, l := range Loops() {
		got = append(got, l.Name)
	}
	if len(got) == 0 {
		t.Skip("built without assembly")
	}
	if !slices.Equal(got, want) {
		t.Errorf("loops %v, want %v", got, want)
	}
}

func TestLoopsRun(t *testing.T) {
	for _, l := range Loops() {
		began := time.Now()
		l.Run(1 << 16)
		rate := float64(l.RoundOps<<16) / time.Since(began).Seconds()
		if l.RoundOps%Chains != 0 || !(rate > 1e8 && rate < 1e14) {
			t.Errorf("%s: %d operations a round, %g a second", l.Name, l.RoundOps, rate)
		}
	}
}

func TestReadLengths(t *testing.T) {
	for _, n := range []int{0, 1, ReadBytes - 1, ReadBytes, 3*ReadBytes + 7, 1 << 20} {
		Read(make([]byte, n))
	}
	b := make([]byte, 2*ReadBytes)
	for i := range b {
		b[i] = byte(i % 8)
	}
	readWords(&b[0], 2)
	if word := binary.LittleEndian.Uint64(b); seen.Load() != word*uint64(len(b)/8) {
		t.Errorf("the words sum to %#x, want %d of %#x", seen.Load(), len(b)/8, word)
	}
}

func BenchmarkLoops(b *testing.B) {
	for _, l := range Loops() {
		b.Run(l.Name, func(b *testing.B) {
			for b.Loop() {
				l.Run(1 << 14)
			}
			b.ReportMetric(float64(l.RoundOps<<14)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GOPS")
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, size := range []int{128 << 10, 256 << 20} {
		buffer := make([]byte, size)
		for i := range buffer {
			buffer[i] = byte(i) // untouched memory is one page of zeros
		}
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				Read(buffer)
			}
		})
	}
}
