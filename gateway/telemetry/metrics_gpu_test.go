package telemetry

import (
	"strings"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
)

func TestGPU(t *testing.T) {
	state := &wire.State{Model: wire.Model{ID: "m"}, GPU: wire.GPUState{Milliwatts: 350500, MemoryUsed: 7 << 30, MemoryAll: 80 << 30, ClockMHz: 1980, MemClockMHz: 2619, Celsius: 61, Throttled: 0x44}}
	expectNumbers(t, scrape(t, quiet(t, &Levels{Engine: state}), "", ""), map[string]float64{
		`forebay_gpu_power_watts`: 350.5, `forebay_gpu_memory_bytes`: 80 << 30, `forebay_gpu_memory_used_bytes`: 7 << 30,
		`forebay_gpu_clock_hertz{part="sm"}`: 1.98e9, `forebay_gpu_clock_hertz{part="memory"}`: 2.619e9, `forebay_gpu_temperature_celsius`: 61,
		`forebay_gpu_throttled{reason="power_cap"}`: 1, `forebay_gpu_throttled{reason="thermal"}`: 1,
		`forebay_gpu_throttled{reason="hardware"}`: 0, `forebay_gpu_throttled{reason="power_brake"}`: 0,
	})
	if page := scrape(t, quiet(t, &Levels{Engine: &wire.State{}}), "", ""); strings.Contains(page, "\nforebay_gpu_") {
		t.Error("numbers of a GPU without one")
	}
}
