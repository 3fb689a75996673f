package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay-io/forebay/internal/wire"
)

var (
	specGPUPower     = gauge("forebay_gpu_power_watts", "Power that the GPU takes.")
	specGPUMemory    = gauge("forebay_gpu_memory_bytes", "The GPU's memory.")
	specGPUUsed      = gauge("forebay_gpu_memory_used_bytes", "What of it all processes use.")
	specGPUClock     = gauge("forebay_gpu_clock_hertz", "Clock of the GPU's processors (sm) and of its memory (memory).", "part")
	specGPUCelsius   = gauge("forebay_gpu_temperature_celsius", "Temperature of the GPU.")
	specGPUThrottled = gauge("forebay_gpu_throttled", "1 while the GPU is slower than it could be, by reason: power_cap (its limit of power is reached), thermal (it is hot), power_brake (the machine's supply asks for it), hardware (another reason of the hardware).", "reason")
)

// gpuSlowed are the bits of GPUState.Throttled that mean that the GPU is slower than it could be.
var gpuSlowed = []struct {
	bit    uint64
	reason string
}{{0x4, "power_cap"}, {0x8, "hardware"}, {0x20, "thermal"}, {0x40, "thermal"}, {0x80, "power_brake"}}

// collectGPU shows what the GPU says of itself, where there is one that does.
func collectGPU(ch chan<- prometheus.Metric, g *wire.GPUState) {
	if *g == (wire.GPUState{}) {
		return
	}
	ch <- specGPUPower.value(float64(g.Milliwatts) / 1e3)
	ch <- specGPUMemory.value(float64(g.MemoryAll))
	ch <- specGPUUsed.value(float64(g.MemoryUsed))
	ch <- specGPUClock.value(float64(g.ClockMHz)*1e6, "sm")
	ch <- specGPUClock.value(float64(g.MemClockMHz)*1e6, "memory")
	ch <- specGPUCelsius.value(float64(g.Celsius))
	slowed := map[string]float64{}
	for _, r := range gpuSlowed {
		slowed[r.reason] = max(slowed[r.reason], float64(min(1, g.Throttled&r.bit)))
	}
	for reason, on := range slowed {
		ch <- specGPUThrottled.value(on, reason)
	}
}
