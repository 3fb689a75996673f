package speed

import (
	"time"

	"github.com/forebay-io/forebay/kernels"
	"github.com/forebay-io/forebay/kernels/probe"
)

const (
	// windows is how many times a rate is taken; the median counts, since other
	// guests of the machine disturb some.
	windows = 5
	// window is how long each lasts.
	window = 10 * time.Millisecond

	// memoryBytes is what the read loop walks over, all workers together: far
	// over the last cache of most machines.
	memoryBytes = 512 << 20
	// cacheBytes is what a worker walks over to see its second cache.
	cacheBytes = 192 << 10
	// readStep is what is read between two looks at the clock.
	readStep = 1 << 20
)

// Roof measures the machine with a team's workers.
type Roof struct {
	team   *kernels.Team
	memory []byte
	worked []int // for each worker
}

// NewRoof reserves and touches memoryBytes.
func NewRoof(team *kernels.Team) *Roof {
	r := &Roof{team: team, memory: make([]byte, memoryBytes), worked: make([]int, 16*team.Workers())}
	team.Run(func(worker int) {
		lo, hi := kernels.Split(len(r.memory), readStep, worker, team.Workers())
		for part := r.memory[lo:hi]; len(part) > 0; part = part[min(len(part), 64):] {
			part[0] = byte(len(part)) // untouched memory is one page of zeros
		}
	})
	return r
}

// rate gives the median over windows of how much a second the first workers do
// together; work does a little and says how much.
func (r *Roof) rate(workers int, work func(worker int) int) float64 {
	var rates []float64
	for range windows + 1 {
		clear(r.worked)
		began := time.Now()
		r.team.Run(func(worker int) {
			for worker < workers && time.Since(began) < window {
				r.worked[16*worker] += work(worker) // a cache line apart
			}
		})
		took, total := time.Since(began), 0
		for _, n := range r.worked {
			total += n
		}
		rates = append(rates, float64(total)/took.Seconds())
	}
	return Median(rates[1:]) // the first wakes the processor
}

// Read is the bytes a second that so many workers read from memory, each from a
// part of its own.
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

// Cache is Read of a part that stays in the worker's second cache.
func (r *Roof) Cache(workers int) float64 {
	return r.rate(workers, func(worker int) int {
		part := r.memory[worker*readStep:][:cacheBytes]
		for range 4 {
			probe.Read(part)
		}
		return 4 * len(part)
	})
}

// Machine measures everything with so many workers, at most the team's.
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

// giga is x in 1e9, to three places: more is noise.
func giga(x float64) float64 { return round(x/1e9, 1000) }
