package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of what tokens cost.
var (
	specEnergy   = counter("forebay_energy_joules_total", "Energy that the machine's processors and memory used since the gateway's start, by RAPL zone, other processes included. Absent if /sys/class/powercap cannot be read.", "zone")
	specPerJoule = gauge("forebay_tokens_per_joule", "Tokens over the energy of packages and memory, which is tokens a second for each watt, in the last five minutes: all (of prompts, cached ones included, and of answers) and completion. Absent without RAPL.", "kind")
	specSpent    = counter("forebay_cost_total", "What the machine cost since the gateway's start, in the currency of telemetry.price_per_hour. Absent if that is 0.")
	specPrice    = gauge("forebay_cost_per_million_tokens", "What a million tokens cost in the last five minutes at that price, for all tokens, or as if answers (completion) carried the whole price. Absent without a price or tokens.", "kind")
)

// economy computes what tokens cost in money and energy, over a sliding window.
type economy struct {
	engine *engineMetrics
	power  *rapl
	now    func() int64

	mu           sync.Mutex
	pricePerHour float64
	began        int64
	samples      [samplesMax]sample // a ring
	taken        int
}

// sample is what was used up to an instant.
type sample struct {
	at              int64
	all, completion uint64
	joules          float64
}

// The window is samplesMax samples, sampleInterval apart.
const (
	sampleInterval = 10 * time.Second
	samplesMax     = 31
)

func newEconomy(engine *engineMetrics, power *rapl, now func() int64) *economy {
	e := &economy{engine: engine, power: power, now: now, began: now()}
	e.take(e.sample())
	return e
}

// Price sets what an hour of the machine costs, in any currency; 0 is unknown.
func (r *Recorder) Price(perHour float64) {
	e := r.metrics.economy
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pricePerHour = perHour
}

func (e *economy) sample() sample {
	all, completion := e.engine.served()
	return sample{at: e.now(), all: all, completion: completion, joules: e.power.joules(nil)}
}

// take replaces the oldest sample by s. The caller holds mu or is newEconomy.
func (e *economy) take(s sample) {
	e.samples[e.taken%samplesMax] = s
	e.taken++
}

func (e *economy) newest() *sample { return &e.samples[(e.taken-1)%samplesMax] }

func (e *economy) oldest() *sample {
	if e.taken < samplesMax {
		return &e.samples[0]
	}
	return &e.samples[e.taken%samplesMax]
}

// note takes a sample if the last one is old enough at the instant at.
func (e *economy) note(at int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at-e.newest().at >= int64(sampleInterval) {
		e.take(e.sample())
	}
}

func (e *economy) collect(ch chan<- prometheus.Metric) {
	e.note(e.now())
	e.mu.Lock()
	defer e.mu.Unlock()
	now, from := e.sample(), e.oldest()
	tokens := map[string]float64{"all": float64(now.all - from.all), "completion": float64(now.completion - from.completion)}
	if e.power.readable() {
		e.power.joules(func(zone string, joules float64) { ch <- specEnergy.value(joules, zone) })
	}
	if joules := now.joules - from.joules; joules > 0 {
		for kind, n := range tokens {
			ch <- specPerJoule.value(n/joules, kind)
		}
	}
	if e.pricePerHour <= 0 {
		return
	}
	price := func(ns int64) float64 { return e.pricePerHour * time.Duration(ns).Hours() }
	ch <- specSpent.value(price(now.at - e.began))
	for kind, n := range tokens {
		if n > 0 {
			ch <- specPrice.value(price(now.at-from.at)*1e6/n, kind)
		}
	}
}
