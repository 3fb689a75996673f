package telemetry

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/internal/wire"
)

// TestEngineCountersNeverFall plays an engine that goes away, comes back as it
// was, and is replaced by another.
func TestEngineCountersNeverFall(t *testing.T) {
	r := quiet(t, &Levels{})
	const steps, losses = "forebay_engine_steps_total", "forebay_engine_losses_total"
	down := &wire.Error{Kind: wire.Unavailable, Message: "gone"}
	for i, c := range []struct {
		state         wire.State
		steps, losses float64
	}{
		{wire.State{Err: down}, 0, 0}, // not there yet
		{wire.State{Step: 10}, 10, 0},
		{wire.State{Step: 15}, 15, 0},
		{wire.State{Err: down}, 15, 1},
		{wire.State{Err: down}, 15, 1},
		{wire.State{Step: 15}, 15, 1}, // the socket broke, the process lived
		{wire.State{Step: 20}, 20, 1},
		{wire.State{Err: down}, 20, 2},
		{wire.State{Step: 3}, 23, 2}, // another process
		{wire.State{Step: 5}, 25, 2},
	} {
		c.state.At, c.state.DecodeTokens = int64(i+1), 2*c.state.Step
		r.Heard(&c.state)
		old := c.state
		old.At, old.Step = int64(i), 1 // a scrape that looked before and comes after
		r.Heard(&old)
		expectNumbers(t, scrape(t, r, "", ""), map[string]float64{steps: c.steps, losses: c.losses, `forebay_engine_tokens_total{kind="decode"}`: 2 * c.steps})
	}
}

// TestDeviceFailuresByKernel: each is counted once, and no more kernels get a label than the limit.
func TestDeviceFailuresByKernel(t *testing.T) {
	r := quiet(t, &Levels{})
	at := int64(0)
	fail := func(kernel string) {
		for _, err := range []*wire.Error{nil, {Kind: wire.DeviceFailed, Kernel: kernel}, {Kind: wire.Unavailable}} {
			at++
			r.Heard(&wire.State{At: at, Err: err})
		}
	}
	for _, kernel := range []string{"", "add_norm", "add_norm"} {
		fail(kernel)
	}
	name := func(kernel string) string { return fmt.Sprintf("forebay_device_failures_total{kernel=%q}", kernel) }
	expectNumbers(t, scrape(t, r, "", ""), map[string]float64{name("unknown"): 1, name("add_norm"): 2, "forebay_engine_losses_total": 3})
	for i := range failedKernelsMax + 8 {
		fail(fmt.Sprint("k", i))
	}
	expectNumbers(t, scrape(t, r, "", ""), map[string]float64{name("add_norm"): 2, name("k0"): 1, name("other"): 10})
}

func TestStepsAndKernelsAreAddedUp(t *testing.T) {
	log := wire.NewStepLog(4)
	state := &wire.State{At: 1, Totals: wire.Totals{PrefillTokens: 30, CachedTokens: 10}, States: wire.States{CheckpointsMade: 6, CheckpointsRestored: 5, CheckpointsDropped: 4, UnreachedTokens: 3}, Steps: log, Blocks: hitmap.Journal{Changes: []hitmap.Change{{Hash: 1}, {Hash: 1, Evicted: true}}}}
	levels := &Levels{Engine: state}
	r := quiet(t, levels)
	add := func(s wire.StepRecord) {
		s.Ended = s.Began + 4e6
		s.Gap, s.Idle, s.GivenUp = 2*time.Microsecond, time.Second, time.Millisecond
		s.Kernels[wire.KernelMLP] = wire.KernelTime{Count: 1 << 31, Total: time.Millisecond}
		log.Add(&s)
	}
	add(wire.StepRecord{Step: 1, PrefillTokens: 30, Members: make([]wire.StepMember, 1)})
	add(wire.StepRecord{Step: 2, DecodeRows: 1, Members: make([]wire.StepMember, 1), CPU: 3 * time.Millisecond,
		Lost: []wire.LostTime{{Begin: 1, End: 9e9, By: [wire.LostCauseCount]time.Duration{wire.LostFrozen: 3 * time.Second, wire.LostTaken: time.Second}}, {Begin: 9e9, End: 11e9, By: [wire.LostCauseCount]time.Duration{wire.LostFrozen: time.Second}}}})
	r.Heard(state)
	scrape(t, r, "", "") // reads nothing twice
	add(wire.StepRecord{Step: 5, DecodeRows: 2, PrefillTokens: 7, Members: make([]wire.StepMember, 2), MembersMore: 300})
	expectNumbers(t, scrape(t, r, "", ""), map[string]float64{
		`forebay_engine_step_duration_seconds_count{phase="prefill"}`: 1,
		`forebay_engine_step_duration_seconds_count{phase="decode"}`:  1,
		`forebay_engine_step_duration_seconds_sum{phase="mixed"}`:     .004,
		`forebay_engine_step_batch_size_sum{phase="mixed"}`:           302,
		`forebay_engine_step_tokens_sum{phase="mixed"}`:               9,
		`forebay_engine_step_prefill_tokens_sum`:                      37,
		`forebay_engine_step_prefill_tokens_bucket{le="0"}`:           1,
		`forebay_engine_step_host_gap_seconds_count`:                  3,
		`forebay_engine_time_seconds_total{state="step"}`:             .012,
		`forebay_engine_time_seconds_total{state="idle"}`:             3,
		`forebay_engine_time_seconds_total{state="gap"}`:              6e-6,
		`forebay_engine_time_seconds_total{state="given_up"}`:         .003,
		`forebay_engine_lost_seconds_total{cause="frozen"}`:           4,
		`forebay_engine_lost_seconds_total{cause="taken"}`:            1,
		`forebay_engine_lost_seconds_total{cause="throttled"}`:        0,
		`forebay_engine_step_cpu_seconds_total`:                       .003,
		`forebay_engine_step_records_lost_total`:                      2,
		`forebay_state_checkpoints_total{result="made"}`:              6,
		`forebay_state_checkpoints_total{result="restored"}`:          5,
		`forebay_state_checkpoints_total{result="dropped"}`:           4,
		`forebay_state_unreached_tokens_total`:                        3,
		`forebay_kernel_seconds_total{kernel_class="mlp"}`:            .003,
		`forebay_kernel_launches_total{kernel_class="mlp"}`:           3 << 31,
		`forebay_kernel_launches_total{kernel_class="qkv"}`:           0,
		`forebay_prefix_queries_total`:                                40,
		`forebay_prefix_hits_total`:                                   10,
		`forebay_kv_evicted_blocks_total`:                             1,
	})
}

func TestPagesInBytes(t *testing.T) {
	state := &wire.State{Model: wire.Model{ID: "m", PageBytes: 1 << 20, Kernels: "avx2"}, Pages: wire.Pages{PagesTotal: 8, PagesUsed: 2, PagesCached: 5, PagesFree: 1},
		Totals: wire.Totals{Disk: wire.DiskState{Blocks: 9, Bytes: 900}}, States: wire.States{StatesUsed: 2, StatesCached: 7, StatesPinned: 4, StatesFree: 1}}
	state.Model.StateBytes = 1 << 10
	expectNumbers(t, scrape(t, quiet(t, &Levels{Engine: state}), "", ""), map[string]float64{
		`forebay_kv_bytes{state="used"}`: 2 << 20, `forebay_kv_bytes{state="cached"}`: 5 << 20, `forebay_kv_bytes{state="free"}`: 1 << 20,
		`forebay_state_bytes{state="used"}`: 2 << 10, `forebay_state_bytes{state="cached"}`: 3 << 10, `forebay_state_bytes{state="pinned"}`: 4 << 10, `forebay_state_bytes{state="free"}`: 1 << 10,
		`forebay_kv_usage_ratio`: .25, `forebay_kv_pages`: 8, `forebay_kv_disk_blocks`: 9, `forebay_kv_disk_bytes`: 900,
		`forebay_engine_info{architecture="",kernels="avx2",model="m",quantization=""}`: 1,
	})
}

// TestVLLMNames: the numbers under vLLM's names are those under ours.
func TestVLLMNames(t *testing.T) {
	levels := &Levels{RequestsRunning: 3, RequestsWaiting: 7, Engine: &wire.State{At: 1, Err: &wire.Error{Kind: wire.Unavailable}}}
	r := quiet(t, levels)
	if page := scrape(t, r, "?compat=vllm", ""); page != "" {
		t.Errorf("a page for no model: %s", page)
	}
	levels.Engine = &wire.State{At: 2, Model: wire.Model{ID: "m", PageTokens: 16}, Pages: wire.Pages{PagesTotal: 8, PagesUsed: 2}, Totals: wire.Totals{Preempted: 4, PrefillTokens: 30, CachedTokens: 10, DecodeTokens: 5}}
	for _, class := range []string{"batch", "interactive"} {
		rec := fullRecord()
		rec.Class, rec.Outcome = class, OK
		r.Finish(rec)
	}
	r.Finish(fullRecord())
	of := func(name, more string) string { return "vllm:" + name + `{engine="0",` + more + `model_name="m"}` }
	expectNumbers(t, scrape(t, r, "?compat=vllm", ""), map[string]float64{
		of("num_requests_running", ""): 3, of("num_requests_waiting", ""): 7, of("kv_cache_usage_perc", ""): .25,
		of("prefix_cache_queries_total", ""): 40, of("prefix_cache_hits_total", ""): 10, of("num_preemptions_total", ""): 4,
		of("prompt_tokens_total", ""): 40, of("generation_tokens_total", ""): 5,
		of("time_to_first_token_seconds_count", ""): 3, of("time_to_first_token_seconds_sum", ""): 9,
		of("e2e_request_latency_seconds_count", ""): 2, of("request_queue_time_seconds_count", ""): 3,
		`vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"}`:  2,
		`vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"}`: 1,
	})
	levels.Engine = &wire.State{At: 3, Err: &wire.Error{Kind: wire.Unavailable}}
	expectNumbers(t, scrape(t, r, "?compat=vllm", ""), map[string]float64{of("num_preemptions_total", ""): 4, of("kv_cache_usage_perc", ""): 0})
}

func TestEnergyIsReadWhereItMayBe(t *testing.T) {
	if r := openRAPL(filepath.Join(t.TempDir(), "none")); r.readable() || r.joules(nil) != 0 {
		t.Error("energy without a place to read it")
	}
	root := powercap(t, map[string]string{
		"intel-rapl": "no zone", "intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:0:1": "dram", "intel-rapl:1": "package-1",
		"intel-rapl:2": "psys", "intel-rapl-mmio:0": "package-0", "dtpm": "other", "intel-rapl:3": "package-3", "intel-rapl:4": "package-4",
	})
	writeFile(t, filepath.Join(root, "intel-rapl:3", "energy_uj"), "not a number")
	os.Remove(filepath.Join(root, "intel-rapl:4", "max_energy_range_uj"))
	r := openRAPL(root)
	read := func() map[string]float64 {
		all := map[string]float64{}
		all["total"] = r.joules(func(zone string, j float64) { all[zone] = j })
		return all
	}
	expect := func(when string, want map[string]float64) {
		t.Helper()
		got := read()
		for zone, j := range want {
			if got[zone] != j || len(got) != len(want) {
				t.Errorf("%s: %v, want %v", when, got, want)
				return
			}
		}
	}
	expect("at first", map[string]float64{"package-0": 0, "package-0/core": 0, "package-0/dram": 0, "package-1": 0, "total": 0})
	for dir, uj := range map[string]string{"intel-rapl:0": "5000000", "intel-rapl:0:0": "3000000", "intel-rapl:0:1": "1500000"} {
		writeFile(t, filepath.Join(root, dir, "energy_uj"), uj)
	}
	expect("later", map[string]float64{"package-0": 4, "package-0/core": 2, "package-0/dram": .5, "package-1": 0, "total": 4.5})
	writeFile(t, filepath.Join(root, "intel-rapl:0", "energy_uj"), "500000") // it began again at 10 J
	os.Remove(filepath.Join(root, "intel-rapl:0:1", "energy_uj"))
	expect("around", map[string]float64{"package-0": 9.5, "package-0/core": 2, "package-0/dram": .5, "package-1": 0, "total": 10})
}

// TestCostAndTokensPerJoule moves a clock of its own over more than the window.
func TestCostAndTokensPerJoule(t *testing.T) {
	state := &wire.State{At: 1}
	r := quiet(t, &Levels{Engine: state})
	now := int64(1)
	root := powercap(t, map[string]string{"intel-rapl:0": "package-0"})
	r.metrics.power = openRAPL(root)
	r.metrics.economy = newEconomy(r.metrics.engine, r.metrics.power, func() int64 { return now })
	if page := scrape(t, r, "", ""); strings.Contains(page, "forebay_cost") || strings.Contains(page, "per_joule") {
		t.Error("a price without one, or tokens for each joule before any")
	}
	r.Price(3.6) // 0.001 a second
	second := func(prompt, answer uint64) {
		now += 1e9
		state.At, state.Step, state.PrefillTokens, state.DecodeTokens = now, state.Step+1, state.PrefillTokens+prompt, state.DecodeTokens+answer
		r.Heard(state)
	}
	for range 100 {
		second(30, 10)
	}
	writeFile(t, filepath.Join(root, "intel-rapl:0", "energy_uj"), "3000000")
	want := map[string]float64{
		`forebay_cost_total`:                                 .1,
		`forebay_cost_per_million_tokens{kind="all"}`:        25,
		`forebay_cost_per_million_tokens{kind="completion"}`: 100,
		`forebay_tokens_per_joule{kind="all"}`:               2000,
		`forebay_tokens_per_joule{kind="completion"}`:        500,
		`forebay_energy_joules_total{zone="package-0"}`:      2,
	}
	expectNumbers(t, scrape(t, r, "", ""), want)
	for range 400 {
		second(10, 10) // what was before leaves the window
	}
	expectNumbers(t, scrape(t, r, "", ""), map[string]float64{
		`forebay_cost_total`: .5, `forebay_cost_per_million_tokens{kind="all"}`: 50, `forebay_cost_per_million_tokens{kind="completion"}`: 100,
	})
}
