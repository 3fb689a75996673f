package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/internal/wire"
)

// Metrics of the engine's work. They are summed over all engine processes, so that
// no counter falls when a process ends.
var (
	specSteps       = counter("forebay_engine_steps_total", "Steps of the engine.")
	specNonFinite   = counter("forebay_engine_nonfinite_total", "Rows ended because the model gave NaN or infinity.")
	specFallbacks   = counter("forebay_engine_tool_call_fallbacks_total", "Texts of answers that began as a tool call and did not go on as one, so that they were sent as text or cut short.")
	specGrammars    = counter("forebay_engine_grammars_total", "Grammars of answers: compiled, found (compiled before), refused (they cannot be enforced), failed (the answer could not follow it and ended with an error).", "result")
	specPreempted   = counter("forebay_engine_preempted_total", "Times a sequence lost its pages and was computed again.")
	specYielded     = counter("forebay_pins_yielded_total", "Pins that ended early, for a prompt that needed all pages.")
	specComputed    = counter("forebay_engine_tokens_total", "Tokens of the engine: prefill (prompt tokens computed, also those computed again after a preemption), cached (prompt tokens not computed), decode (generated).", "kind")
	specQueries     = counter("forebay_prefix_queries_total", "Prompt tokens that were looked up among the cached pages.")
	specHits        = counter("forebay_prefix_hits_total", "Prompt tokens that were found among the cached pages.")
	specEvicted     = counter("forebay_kv_evicted_blocks_total", "Cached blocks of keys and values that were evicted.")
	specLosses      = counter("forebay_engine_losses_total", "Times the engine went away: it ended, hung, or its socket broke.")
	specFailed      = counter("forebay_device_failures_total", "Times the engine ended since its GPU failed, by kernel; unknown where kernels were not waited for (engine.device.checked).", "kernel")
	specLost        = counter("forebay_engine_step_records_lost_total", "Steps that are missing in the metrics by step because their records came too late.")
	specEngineTime  = counter("forebay_engine_time_seconds_total", "Time of the engine's loop: step, gap (between steps, with work waiting), given_up (steps given up for more urgent requests), idle.", "state")
	specLostTime    = counter("forebay_engine_lost_seconds_total", "Time in which the engine had work and did not run: frozen (its process was stopped), taken (other programs had the processors), stolen (the hypervisor had them), throttled (its CPU limit was used up), paging (it waited for memory from a disk).", "cause")
	specCPU         = counter("forebay_engine_step_cpu_seconds_total", "Processor time of the engine's process in its steps, on all processors together.")
	specDiskMoves   = counter("forebay_kv_disk_total", "Blocks of keys and values that were read from disk, written, dropped because the disk was slow or full, and found damaged. For a GPU without engine.disk_cache: the blocks in this machine's memory.", "result")
	specCheckpoints = counter("forebay_state_checkpoints_total", "Copies of the states of recurrent layers at the ends of cached blocks: made, restored (a sequence went on from one), dropped (for another state, or with the block).", "result")
	specUnreached   = counter("forebay_state_unreached_tokens_total", "Prompt tokens that were computed though their pages were cached, since no copy of the state lay behind them.")
	specStep        = distribution(stepBuckets, "forebay_engine_step_duration_seconds", "Duration of a step; its phase says whether it computed prompts (prefill), next tokens (decode) or both (mixed).", "phase")
	specGap         = distribution(gapBuckets, "forebay_engine_step_host_gap_seconds", "Time between two steps in which the engine took arrivals, composed the batch and reported.")
	specBatch       = distribution(rowBuckets, "forebay_engine_step_batch_size", "Sequences in a step.", "phase")
	specStepTokens  = distribution(tokensBuckets, "forebay_engine_step_tokens", "Tokens in a step, of prompts and of answers.", "phase")
	specStepPrefill = distribution(tokensBuckets, "forebay_engine_step_prefill_tokens", "Prompt tokens in a step.")
	specKernelTime  = counter("forebay_kernel_seconds_total", "Wall time of kernels in the engine's steps, by class.", "kernel_class")
	specKernelCount = counter("forebay_kernel_launches_total", "Kernel launches in the engine's steps, by class.", "kernel_class")
)

// Totals of an engine process, from its states.
const (
	totalSteps = iota
	totalNonFinite
	totalFallbacks
	totalPreempted
	totalPrefill
	totalCached
	totalDecode
	totalYielded
	totalGrammars                                        // in the order of grammarResults
	totalDisk      = totalGrammars + len(grammarResults) // in the order of diskResults
	totalStates    = totalDisk + len(diskResults)        // in the order of stateResults
	totalUnreached = totalStates + len(stateResults)
	totalCount     = totalUnreached + 1
)

var (
	grammarResults = [...]string{"compiled", "found", "refused", "failed"}
	stateResults   = [...]string{"made", "restored", "dropped"}
	diskResults    = [...]string{"read", "written", "dropped", "damaged"}
)

// Phases of a step.
const (
	phasePrefill = iota
	phaseDecode
	phaseMixed
	phaseCount
)

var phaseNames = [phaseCount]string{"prefill", "decode", "mixed"}

// engineMetrics sums up the engine's states and step records. Its methods may be
// called from any goroutine.
type engineMetrics struct {
	stepTime, batch, tokens [phaseCount]*histogram
	gap, prefill            *histogram

	mu     sync.Mutex
	at     int64 // of the newest state
	up     bool
	model  wire.Model         // of the last engine that was up
	last   [totalCount]uint64 // of the newest state
	sums   [totalCount]uint64
	blocks hitmap.Reader
	steps  uint64 // records read
	step   uint64 // the last record's number

	evicted, losses, lost   uint64
	failed                  map[string]uint64 // by kernel
	busy, waste, idle, gaps time.Duration
	launches                [wire.KernelClassCount]uint64
	kernels                 [wire.KernelClassCount]time.Duration
	cpu                     time.Duration
	lostTime                [wire.LostCauseCount]time.Duration
}

func newEngineMetrics() *engineMetrics {
	m := &engineMetrics{failed: map[string]uint64{kernelUnknown: 0}, gap: newHistogram(gapBuckets), prefill: newHistogram(tokensBuckets)}
	for i := range phaseCount {
		m.stepTime[i], m.batch[i], m.tokens[i] = newHistogram(stepBuckets), newHistogram(rowBuckets), newHistogram(tokensBuckets)
	}
	return m
}

// Heard takes the engine's states in order, as the OnState of a wire.Config. Scrapes
// read the state too, but they may come too late for some steps.
func (r *Recorder) Heard(s *wire.State) {
	r.metrics.engine.heard(s)
	r.metrics.economy.note(s.At)
}

func (m *engineMetrics) heard(s *wire.State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.At < m.at { // a late reader brings an older state
		return
	}
	m.at = s.At
	m.steps = s.Steps.After(m.steps, m.takeStep)
	if s.Err != nil {
		if m.up {
			m.losses++
			if s.Err.Kind == wire.DeviceFailed {
				m.failed[m.kernelLabel(s.Err.Kernel)]++
			}
		}
		m.up, m.blocks = false, hitmap.Reader{}
		return
	}
	m.up, m.model = true, s.Model
	for _, change := range m.blocks.Read(&s.Blocks).Changes {
		if change.Evicted {
			m.evicted++
		}
	}
	now := [totalCount]uint64{s.Step, s.NonFinite, s.CallFallbacks, s.Preempted, s.PrefillTokens, s.CachedTokens, s.DecodeTokens, s.PinsYielded,
		s.GrammarsCompiled, s.GrammarsFound, s.GrammarsRefused, s.GrammarsFailed,
		s.Disk.Read, s.Disk.Written, s.Disk.Dropped, s.Disk.Corrupted,
		s.CheckpointsMade, s.CheckpointsRestored, s.CheckpointsDropped, s.UnreachedTokens}
	if now[totalSteps] < m.last[totalSteps] { // another process
		m.last = [totalCount]uint64{}
	}
	for i := range now {
		m.sums[i] += now[i] - min(now[i], m.last[i])
	}
	m.last = now
}

const (
	failedKernelsMax = 64 // that have a label of their own
	kernelUnknown    = "unknown"
)

func (m *engineMetrics) kernelLabel(name string) string {
	switch _, known := m.failed[name]; {
	case name == "":
		return kernelUnknown
	case known || len(m.failed) < failedKernelsMax:
		return name
	}
	return "other"
}

// takeStep counts one record; the caller holds mu.
func (m *engineMetrics) takeStep(s *wire.StepRecord) bool {
	if m.step != 0 && s.Step > m.step+1 {
		m.lost += s.Step - m.step - 1
	}
	m.step = s.Step
	phase := phaseMixed
	switch {
	case s.DecodeRows == 0:
		phase = phasePrefill
	case s.PrefillTokens == 0:
		phase = phaseDecode
	}
	took := time.Duration(s.Ended - s.Began)
	m.stepTime[phase].observe(took.Seconds(), 1)
	m.batch[phase].observe(float64(len(s.Members)+s.MembersMore), 1)
	m.tokens[phase].observe(float64(s.DecodeRows+s.PrefillTokens), 1)
	m.prefill.observe(float64(s.PrefillTokens), 1)
	m.gap.observe(s.Gap.Seconds(), 1)
	m.busy, m.gaps, m.waste, m.idle = m.busy+took, m.gaps+s.Gap, m.waste+s.GivenUp, m.idle+s.Idle
	m.cpu += s.CPU
	for i := range s.Lost {
		for c, d := range s.Lost[i].By {
			m.lostTime[c] += d
		}
	}
	for i, k := range s.Kernels {
		m.launches[i] += uint64(k.Count)
		m.kernels[i] += k.Total
	}
	return true
}

// served returns the tokens of prompts and answers so far, and of answers alone.
func (m *engineMetrics) served() (all, completion uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sums[totalPrefill] + m.sums[totalCached] + m.sums[totalDecode], m.sums[totalDecode]
}

func (m *engineMetrics) collect(ch chan<- prometheus.Metric) {
	for i, phase := range phaseNames {
		ch <- m.stepTime[i].metric(specStep.desc, nil, phase)
		ch <- m.batch[i].metric(specBatch.desc, nil, phase)
		ch <- m.tokens[i].metric(specStepTokens.desc, nil, phase)
	}
	ch <- m.gap.metric(specGap.desc, nil)
	ch <- m.prefill.metric(specStepPrefill.desc, nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	count := func(s *spec, n uint64, labels ...string) { ch <- s.value(float64(n), labels...) }
	count(specSteps, m.sums[totalSteps])
	count(specNonFinite, m.sums[totalNonFinite])
	count(specFallbacks, m.sums[totalFallbacks])
	for i, result := range grammarResults {
		count(specGrammars, m.sums[totalGrammars+i], result)
	}
	for i, result := range stateResults {
		count(specCheckpoints, m.sums[totalStates+i], result)
	}
	count(specUnreached, m.sums[totalUnreached])
	for i, result := range diskResults {
		count(specDiskMoves, m.sums[totalDisk+i], result)
	}
	count(specPreempted, m.sums[totalPreempted])
	count(specYielded, m.sums[totalYielded])
	count(specComputed, m.sums[totalPrefill], "prefill")
	count(specComputed, m.sums[totalCached], "cached")
	count(specComputed, m.sums[totalDecode], "decode")
	count(specQueries, m.sums[totalPrefill]+m.sums[totalCached])
	count(specHits, m.sums[totalCached])
	count(specEvicted, m.evicted)
	count(specLosses, m.losses)
	for kernel, n := range m.failed {
		count(specFailed, n, kernel)
	}
	count(specLost, m.lost)
	for state, d := range map[string]time.Duration{"step": m.busy, "gap": m.gaps, "given_up": m.waste, "idle": m.idle} {
		ch <- specEngineTime.value(d.Seconds(), state)
	}
	ch <- specCPU.value(m.cpu.Seconds())
	for c := range wire.LostCauseCount {
		ch <- specLostTime.value(m.lostTime[c].Seconds(), c.String())
	}
	for class := range wire.KernelClassCount {
		ch <- specKernelTime.value(m.kernels[class].Seconds(), class.String())
		count(specKernelCount, m.launches[class], class.String())
	}
}
