package debug

import (
	"slices"

	"github.com/forebay-io/forebay/internal/wire"
)

// stepsMax is how many steps the page shows.
const stepsMax = 256

// StepsPage has the engine's last steps, as GET /debug/steps?format=json gives
// them, newest first. Times are milliseconds.
type StepsPage struct {
	Steps []StepRow `json:"steps"`
	// OverMS is the time from the begin of the oldest step to the end of the
	// newest; a step ran during the fraction Busy of it.
	OverMS        float64 `json:"over_ms"`
	Busy          float64 `json:"busy"`
	DecodeTokens  int     `json:"decode_tokens"`
	PrefillTokens int     `json:"prefill_tokens"`
	Pages         KVPages `json:"pages"`
	Sequences     int     `json:"sequences"`
	Error         string  `json:"error,omitempty"` // why the engine cannot serve
}

// KVPages counts the pages of keys and values.
type KVPages struct {
	Total  int `json:"total"`
	Used   int `json:"used"`
	Cached int `json:"cached"`
	Free   int `json:"free"`
}

// StepRow is one step.
type StepRow struct {
	Step          uint64    `json:"step"`
	AgoMS         float64   `json:"ago_ms"` // since it ended
	MS            float64   `json:"ms"`
	GapMS         float64   `json:"gap_ms"`
	GivenUpMS     float64   `json:"given_up_ms"`
	IdleMS        float64   `json:"idle_ms"`
	DecodeRows    int       `json:"decode_rows"`
	PrefillTokens int       `json:"prefill_tokens"`
	PagesUsed     int       `json:"pages_used"`
	Members       int       `json:"members"`
	LeftOut       int       `json:"left_out"`
	Preempted     int       `json:"preempted"`
	Kernels       []StepRun `json:"kernels"`
}

// StepRun is the time of one kernel class in a step.
type StepRun struct {
	Class string  `json:"class"`
	Count uint32  `json:"count"`
	MS    float64 `json:"ms"`
	MaxMS float64 `json:"max_ms"`
}

// stepsPage is the page from state's log; now is nanoseconds of CLOCK_MONOTONIC.
func stepsPage(state *wire.State, now int64) *StepsPage {
	page := &StepsPage{
		Steps: []StepRow{}, Sequences: state.Sequences,
		Pages: KVPages{state.PagesTotal, state.PagesUsed, state.PagesCached, state.PagesFree},
	}
	if state.Err != nil {
		page.Error = state.Err.Message
	}
	from, ran := state.Steps.Added(), int64(0)
	first, last := int64(0), int64(0)
	state.Steps.After(from-min(from, stepsMax), func(r *wire.StepRecord) bool {
		if first == 0 || r.Began < first {
			first = r.Began
		}
		last = max(last, r.Ended)
		ran += r.Ended - r.Began
		page.DecodeTokens += r.DecodeRows
		page.PrefillTokens += r.PrefillTokens
		page.Steps = append(page.Steps, stepRow(r, now))
		return true
	})
	slices.Reverse(page.Steps)
	if last > first {
		page.OverMS, page.Busy = milliseconds(last-first), float64(ran)/float64(last-first)
	}
	return page
}

func stepRow(r *wire.StepRecord, now int64) StepRow {
	row := StepRow{
		Step: r.Step, AgoMS: milliseconds(now - r.Ended), MS: milliseconds(r.Ended - r.Began),
		GapMS: milliseconds(int64(r.Gap)), GivenUpMS: milliseconds(int64(r.GivenUp)), IdleMS: milliseconds(int64(r.Idle)),
		DecodeRows: r.DecodeRows, PrefillTokens: r.PrefillTokens, PagesUsed: r.PagesUsed,
		Members: len(r.Members) + r.MembersMore, LeftOut: len(r.LeftOut) + r.LeftOutMore, Preempted: len(r.Preempted) + r.PreemptedMore,
		Kernels: []StepRun{},
	}
	for class, k := range r.Kernels {
		if k.Count > 0 {
			row.Kernels = append(row.Kernels, StepRun{wire.KernelClass(class).String(), k.Count, milliseconds(int64(k.Total)), milliseconds(int64(k.Max))})
		}
	}
	return row
}
