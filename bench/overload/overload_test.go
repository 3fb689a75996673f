package main

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain lets this program be its own busy loop, as main does.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == spinFlag {
		spin()
	}
	os.Exit(m.Run())
}

func TestQuantiles(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   quantiles
	}{
		{nil, quantiles{}},
		{[]float64{7}, quantiles{1, 7, 7}},
		{[]float64{3, 1, 2, 4}, quantiles{4, 3, 4}},
	} {
		if got := quantilesOf(c.values); got != c.want {
			t.Errorf("quantiles of %v: %v, want %v", c.values, got, c.want)
		}
	}
	hundred := make([]float64, 100)
	for i, at := range rand.Perm(100) {
		hundred[i] = float64(at + 1)
	}
	if got := quantilesOf(hundred); got != (quantiles{100, 51, 100}) {
		t.Errorf("quantiles of 1 to 100: %v", got)
	}
}

// TestArrivals: the same seeds give the same requests, others give others, and the
// gaps are exponential: their deviation is as large as their mean, where evenly
// spaced arrivals have none.
func TestArrivals(t *testing.T) {
	text := tokenScale{base: 30, each: 1}
	draw := func(name string, seed, stream uint64) []request {
		return newPlanner(scenarios[name], text, seed, stream).arrivals(50, 100*time.Second)
	}
	for _, name := range scenarioNames() {
		all := draw(name, 1, 2)
		if !slices.Equal(all, draw(name, 1, 2)) {
			t.Errorf("%s: the same seeds give other requests", name)
		}
		if slices.Equal(all, draw(name, 2, 2)) || slices.Equal(all, draw(name, 1, 3)) {
			t.Errorf("%s: another seed or stream gives the same requests", name)
		}
		if n := len(all); n < 4500 || n > 5500 {
			t.Errorf("%s: %d requests in 100 s at 50 a second", name, n)
		}
		var mean, square float64
		for i := 1; i < len(all); i++ {
			gap := (all[i].at - all[i-1].at).Seconds()
			mean, square = mean+gap/float64(len(all)), square+gap*gap/float64(len(all))
		}
		if spread := math.Sqrt(square-mean*mean) / mean; spread < 0.9 || spread > 1.1 {
			t.Errorf("%s: the deviation of the gaps is %.2f of their mean", name, spread)
		}
	}
}

// TestMixedSizes: each doubling of the length has as many prompts, and none leaves
// its bounds or the context.
func TestMixedSizes(t *testing.T) {
	text := tokenScale{base: 0, each: 1}
	count := func(text tokenScale) (short, all int) {
		p := newPlanner(scenarios["mixed"], text, 1, 1)
		for all < 4000 {
			r := p.next(open)
			if r.words < 10 || r.words > 2000 || r.asked < 10 || r.asked > 60 {
				t.Fatalf("%d words and %d tokens", r.words, r.asked)
			}
			if text.context > 0 && text.tokens(r.words)+r.asked > text.context {
				t.Fatalf("%d words and %d tokens exceed the context of %d", r.words, r.asked, text.context)
			}
			if all++; r.words <= 141 { // the middle of 10 and 2,000 by their ratio
				short++
			}
		}
		return short, all
	}
	if short, all := count(text); short < all*45/100 || short > all*55/100 {
		t.Errorf("%d of %d prompts are in the lower half of the scale", short, all)
	}
	text.context = 512
	count(text)
}

func TestJudge(t *testing.T) {
	const ms = time.Millisecond
	ok := answer{status: 200, first: 2500 * ms, end: 3 * time.Second}
	no := answer{status: 503, code: "would_be_late", end: 2 * ms}
	slow := answer{status: 503, code: "would_be_late", end: 900 * ms}
	cut := answer{status: 200, end: 30 * time.Second, cut: true}
	for _, c := range []struct {
		name   string
		answer answer
		log    *logged
		ending ending
		broken bool
	}{
		{"served, late by the default goal", ok, nil, served, true},
		{"served, in time by its own goal", ok, &logged{Outcome: "ok", Accepted: 1, FirstWrite: 2499, Goal: 2600, Promise: "kept"}, served, false},
		{"served, broken as the gateway says", answer{status: 200, first: 1 * ms, end: 2 * ms}, &logged{Outcome: "ok", Promise: "broken"}, served, true},
		{"served late, a log without promises", ok, &logged{Outcome: "ok", FirstWrite: 2499, Broken: "queue,first_token"}, served, true},
		{"served, another goal broken, a log without promises", ok, &logged{Outcome: "ok", FirstWrite: 1, Broken: "token"}, served, false},
		{"refused at once, no log", no, nil, refused, false},
		{"refused late, no log", slow, nil, revoked, false},
		{"refused on arrival that took long", slow, &logged{Outcome: "late", Prepared: 890, Reserved: 890, Total: 899, Goal: 2000}, refused, false},
		{"refused on arrival that took long, a log without promises", slow, &logged{Outcome: "late", Prepared: 890, Reserved: 890, Total: 899}, refused, false},
		{"refused after a wait, a log without promises", slow, &logged{Outcome: "late", Prepared: 1, Reserved: 1, Total: 899}, revoked, false},
		{"revoked at once", no, &logged{Outcome: "late", Accepted: 1, Total: 1, Goal: 2000, Promise: "revoked"}, revoked, false},
		{"revoked after its goal", slow, &logged{Outcome: "revoked", Accepted: 1, Total: 2900, Goal: 2000, Promise: "broken"}, revoked, true},
		{"refused in the stream", answer{status: 200, code: "queue_timeout", end: 6 * time.Second}, nil, revoked, false},
		{"an error in the stream", answer{status: 200, code: "engine_error", first: 1 * ms, end: 2 * ms}, nil, failed, false},
		{"a wrong request", answer{status: 400, code: "invalid_value", end: 1 * ms}, nil, failed, false},
		{"a broken connection", answer{err: os.ErrClosed, end: 3 * time.Second}, nil, failed, true},
		{"given up", cut, nil, unfinished, true},
		{"given up, after a first token in time", answer{status: 200, first: 5 * ms, end: 30 * time.Second, cut: true}, nil, unfinished, false},
	} {
		s := sample{request: &request{}, answer: c.answer, log: c.log}
		s.judge()
		if s.ending != c.ending || s.broken != c.broken {
			t.Errorf("%s: %v, broken %v; want %v, %v", c.name, s.ending, s.broken, c.ending, c.broken)
		}
	}
}

// TestCount: rates count what ended within the window, shares and quantiles what
// arrived within the run.
func TestCount(t *testing.T) {
	const s = time.Second
	var all []*sample
	add := func(at time.Duration, a answer, log *logged) {
		x := &sample{request: &request{at: at, source: open}, sent: at + time.Millisecond, answer: a, log: log}
		x.judge()
		all = append(all, x)
	}
	ok := answer{status: 200, first: s, end: 2 * s}
	add(0, ok, &logged{})                                                               // ends at 2 s, in the window
	add(9*s, ok, &logged{})                                                             // ends after it
	add(5*s, answer{status: 200, first: 3 * s, end: 4 * s}, &logged{Promise: "broken"}) // in it, and late
	add(6*s, answer{status: 503, code: "would_be_late", end: 5 * time.Millisecond}, &logged{Total: 4, Goal: 2000})
	add(7*s, answer{status: 503, code: "no_longer_in_time", end: s}, &logged{Accepted: 1, Outcome: "revoked", Promise: "revoked"})
	add(8*s, answer{status: 500, code: "engine_error", end: s}, nil)
	all = append(all, &sample{request: &request{source: batch}, answer: answer{inWindow: 40}}, &sample{request: &request{source: closed}, answer: ok})
	y := count(all, span{0, 10 * s}, span{2 * s, 10 * s}, 0.25)
	if y.Offered != 6 || y.Served != 3 || y.Refused != 1 || y.Revoked != 1 || y.Failed != 1 || y.Unfinished != 0 || y.Broken != 1 || y.Unlogged != 1 {
		t.Errorf("counts: %+v", y)
	}
	if y.OfferedRate != 0.6 || y.ServedRate != 0.25 || y.InTimeRate != 0.125 || y.OfCapacity != 0.5 || y.BrokenShare != 0.2 || y.RevokedShare != 0.2 || y.BatchRate != 5 {
		t.Errorf("rates: %+v", y)
	}
	if y.FirstToken != (quantiles{3, 1000, 3000}) || y.RefusedGateway != (quantiles{1, 4, 4}) || y.RefusedClient != (quantiles{1, 5, 5}) || y.Lag.P99 != 1 {
		t.Errorf("quantiles: %+v", y)
	}
	if y.Reasons["engine_error"] != 1 || y.Reasons["would_be_late"] != 1 || y.Reasons["no_longer_in_time"] != 1 || len(y.Reasons) != 3 {
		t.Errorf("reasons: %v", y.Reasons)
	}
}

func TestSpread(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		values []float64
		want   string
	}{{[]float64{3, 1, 2}, "2 (1–3)"}, {[]float64{nan, 1234.5}, "1234"}, {[]float64{nan}, "–"}, {[]float64{0.98, 1.04}, "1.01 (0.98–1.04)"}, {[]float64{2, 2}, "2"}} {
		if got := spread(c.values, short); got != c.want {
			t.Errorf("%v is shown as %s, want %s", c.values, got, c.want)
		}
	}
}

// TestNotesOfAnIdlePeer: a peer that serves nothing is named, and has no rows.
func TestNotesOfAnIdlePeer(t *testing.T) {
	r := report{Scenario: "uniform", Clients: 12, Capacities: []capacity{{Server: "forebay", Alone: 5}, {Server: "peer"}}, Runs: []*tally{{Server: "forebay", Factor: 2, ServedRate: 6}}}
	text := r.markdown()
	for _, want := range []string{"| forebay | 2 × |", "Capacity of forebay with 12 waiting clients: 5/s; served at 2 ×: 6/s.", "peer served none of the waiting clients in 1 of 1 runs"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "| peer") || strings.Contains(text, "Capacity of peer") {
		t.Errorf("numbers of a peer that served nothing:\n%s", text)
	}
}

func TestOptions(t *testing.T) {
	for _, args := range [][]string{
		{}, {"--binary", "f", "--url", "u"}, {"--url", "u", "--", "--admission.aging", "3"}, {"--binary", "f", "--log", "l"}, {"--binary", "f", "--scenario", "wild"},
		{"--binary", "f", "--factors", "1,x"}, {"--binary", "f", "--factors", "0"}, {"--binary", "f", "--factors", "NaN"}, {"--binary", "f", "--runs", "0"}, {"--binary", "f", "--seconds", "0.5"},
		{"--binary", "f", "--seconds", "NaN"}, {"--binary", "f", "--capacity", "-1"}, {"--binary", "f", "--clients", "0"},
	} {
		if _, err := parseOptions(args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	o, err := parseOptions([]string{"--binary", "/a/f", "--factors", "0.8, 5", "--peer", "python3 /b/s.py {port}", "--json", "/c", "--", "--admission.aging", "3"})
	if err != nil || !slices.Equal(o.factors, []float64{0.8, 5}) || !slices.Equal(o.serve, []string{"--admission.aging", "3"}) {
		t.Fatal(o, err)
	}
	if want := `go run ./bench/overload --binary f --factors 0.8, 5 --peer "python3 s.py {port}" --admission.aging 3`; o.command != want {
		t.Errorf("command %s", o.command)
	}
}

func TestBusyLoops(t *testing.T) {
	stop, err := startBusy(2)
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
