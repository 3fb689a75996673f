package gateway

import (
	"slices"

	"github.com/valyala/fasthttp"

	"github.com/forebay-io/forebay/internal/wire"
)

// debugSteps is how many steps the page shows at most.
const debugSteps = 256

// StepsPage are the engine's last steps, as GET /debug/steps?format=json gives
// them, newest first. Times are milliseconds.
type StepsPage struct {
	Steps []StepRow `json:"steps"`
	// Over is from the oldest of these steps' begin to the newest's end; Busy is
	// the part of it in which a step ran.
	OverMS        float64 `json:"over_ms"`
	Busy          float64 `json:"busy"`
	DecodeTokens  int     `json:"decode_tokens"`
	PrefillTokens int     `json:"prefill_tokens"`
	Pages         Pages   `json:"pages"`
	Sequences     int     `json:"sequences"`
	Error         string  `json:"error,omitempty"` // why the engine can not serve
}

// Pages counts the pages of keys and values.
type Pages struct {
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

// StepRun is what one class of kernels took in a step.
type StepRun struct {
	Class string  `json:"class"`
	Count uint32  `json:"count"`
	MS    float64 `json:"ms"`
	MaxMS float64 `json:"max_ms"`
}

// Main are the classes of kernels that took a twentieth of the step or more.
func (r *StepRow) Main() (most []StepRun) {
	for _, k := range r.Kernels {
		if k.MS >= r.MS/20 {
			most = append(most, k)
		}
	}
	return most
}

// steps answers GET /debug/steps.
func (d *debugPages) steps(c *fasthttp.RequestCtx) *failure {
	format, f := formatOf(c, "json")
	if f != nil {
		return f
	}
	page := stepsPage(d.g.engine.State(), wire.Monotonic())
	if format == "json" {
		writeValue(c, page)
		return nil
	}
	return writePage(c, fasthttp.StatusOK, "steps.html", struct {
		*StepsPage
		Strip []bar
	}{page, stepStrip(page)})
}

// stepsPage is what state's log tells at now, in nanoseconds of CLOCK_MONOTONIC.
func stepsPage(state *wire.State, now int64) *StepsPage {
	page := &StepsPage{
		Steps: []StepRow{}, Sequences: state.Sequences,
		Pages: Pages{state.PagesTotal, state.PagesUsed, state.PagesCached, state.PagesFree},
	}
	if state.Err != nil {
		page.Error = state.Err.Message
	}
	from, ran := state.Steps.Added(), int64(0)
	first, last := int64(0), int64(0)
	state.Steps.After(from-min(from, debugSteps), func(r *wire.StepRecord) bool {
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
