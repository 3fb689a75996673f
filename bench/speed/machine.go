package speed

import (
	"time"

	"github.com/forebay-io/forebay/kernels"
	"github.com/forebay-io/forebay/kernels/probe"
)

const (
	// windows is how often a rate is measured. The median counts, because other
	// guests of the machine disturb some measurements.
	windows = 5
	// window is the length of a measurement.
	window = 10 * time.Millisecond

	// memoryBytes is the buffer that all workers together read. It is much larger
	// than the last-level cache of most machines.
	memoryBytes = 512 << 20
	// cacheBytes is the buffer that a worker reads in its second-level cache.
	cacheBytes = 192 << 10
	// readStep is how many bytes are read between two reads of the clock.
	readStep = 1 << 20
)

// Roof measures the limits of the machine with a team's workers.
type Roof struct {
	team   *kernels.Team
	memory []byte
	worked []int // for each worker
}

// NewRoof allocates and writes memoryBytes.
func NewRoof(team *kernels.Team) *Roof {
	r := &Roof{team: team, memory: make([]byte, memoryBytes), worked: make([]int, 16*team.Workers())}
	team.Run(func(worker int) {
		lo, hi := kernels.Split(len(r.memory), readStep, worker, team.Workers())
		for part := r.memory[lo:hi]; len(part) > 0; part = part[min(len(part), 64):] {
			part[0] = byte(len(part)) // memory that was never written is one shared page of zeros
		}
	})
	return r
}

// rate returns the median over windows of the work a second that workers workers do
// together. work does a small amount and returns it.
func (r *Roof) rate(workers int, work func(worker int) int) float64 {
	var rates []float64
	for range windows + 1 {
		clear(r.worked)
		began := time.Now()
		r.team.Run(func(worker int) {
			for worker < workers && time.Since(began) < window {
				r.worked[16*worker] += work(worker) // in separate cache lines
			}
		})
		took, total := time.Since(began), 0
		for _, n := range r.worked {
			total += n
		}
		rates = append(rates, float64(total)/took.Seconds())
	}
	return Median(rates[1:]) // the first one only wakes the processor
}

// Read returns the bytes a second that workers workers read from memory, each from
// its own part.
func (r *Roof) Read(workers int) float64 {
	at := make([]int, r.team.Workers())
	return r.rate(workers, func(worker int) int {
		lo, hi := kernels.Split(len(r.memory), readStep, worker, workers)
		if lo+at[worker]+readStep > hi {
			at[worker] = 0
		}
		probe.Read(r.memory[lo+at[worker]:][:readStep])
		at[worker] += readStep
		return readStep
	})
}

// Cache is Read from a part that stays in the worker's second-level cache.
func (r *Roof) Cache(workers int) float64 {
	return r.rate(workers, func(worker int) int {
		part := r.memory[worker*readStep:][:cacheBytes]
		for range 4 {
			probe.Read(part)
		}
		return 4 * len(part)
	})
}

// Machine measures all rates with workers workers, at most those of the team.
func (r *Roof) Machine(workers int) *Machine {
	m := &Machine{Threads: workers, ReadGBs: giga(r.Read(workers)), CacheGBs: giga(r.Cache(workers)), GOPS: map[string]float64{}}
	const rounds = 1 << 14
	for _, l := range probe.Loops() {
		m.GOPS[l.Name] = giga(r.rate(workers, func(int) int {
			l.Run(rounds)
			return rounds * l.RoundOps
		}))
	}
	return m
}

// giga returns x in 1e9, rounded to three decimals; more would be noise.
func giga(x float64) float64 { return round(x/1e9, 1000) }
