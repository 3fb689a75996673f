package gateway

import (
	"fmt"
	"math"
	"slices"

	"github.com/forebay-io/forebay/gateway/capture"
)

// waterfall is a request's page: its view, and three lanes over one time scale.
// Lengths along the time are percent of the drawing's width, so that the
// browser fits the drawing to any screen while its text keeps its size; those
// across are pixels.
type waterfall struct {
	*capture.View
	Ticks     []tick
	Phases    []bar
	Steps     []bar // of the whole step, by who else was in it
	Own       []bar // over them: this request's part of the step
	Kernels   []bar // of each step, one over the other
	StepsAt   int   // where the lane's title stands
	KernelsAt int
	Height    int
}

// tick is a line across the lanes.
type tick struct {
	X      float64
	Label  string
	Anchor string
}

// bar is a stretch of time.
type bar struct {
	X, W   float64
	Y, H   int
	Kind   string // a class of the style sheet
	Title  string
	Href   string
	Label  string
	TextX  float64
	Anchor string
}

// Sizes in pixels.
const (
	axisHeight  = 18
	titleHeight = 24
	rowHeight   = 20
	barHeight   = 14
	stripHeight = 48
)

// barLeast is the least width of a bar, in percent, so that none is lost.
const barLeast = 0.2

func newWaterfall(v *capture.View) *waterfall {
	s := scaleOf(v)
	w := &waterfall{View: v, Ticks: s.ticks()}
	y := axisHeight + titleHeight
	for _, p := range v.Parts {
		w.Phases = append(w.Phases, s.labelled(p.BeginMS, p.MS, y, "p-"+kindOf(p.Name), p.Name+" "+fineTime(p.MS)))
		y += rowHeight
	}
	w.StepsAt = y
	y += titleHeight
	for i := range v.Steps {
		step, own := s.step(&v.Steps[i], y)
		w.Steps = append(w.Steps, step)
		if own.H > 0 {
			w.Own = append(w.Own, own)
		}
	}
	y += stripHeight
	w.KernelsAt = y
	y += titleHeight
	for i := range v.Steps {
		w.Kernels = append(w.Kernels, s.kernels(&v.Steps[i], y)...)
	}
	w.Height = y + stripHeight
	return w
}

// scale maps milliseconds since the arrival to percent of the width.
type scale float64 // milliseconds that are 100 %

func scaleOf(v *capture.View) scale {
	all := v.WallMS
	for _, p := range v.Parts {
		all = max(all, p.BeginMS+p.MS)
	}
	return scale(max(all, 0.001))
}

func (s scale) percent(ms float64) float64 { return min(max(100*ms/float64(s), 0), 100) }

func (s scale) bar(begin, ms float64, y, h int, kind string) bar {
	b := bar{X: min(s.percent(begin), 100-barLeast), Y: y, H: h, Kind: kind}
	b.W = min(max(s.percent(ms), barLeast), 100-b.X)
	return b
}

// labelled is a bar with its text beside it, where there is most room.
func (s scale) labelled(begin, ms float64, y int, kind, label string) bar {
	b := s.bar(begin, ms, y, barHeight, kind)
	b.Label, b.Title = label, label
	const gap = 0.8
	switch right := 100 - b.X - b.W; {
	case right >= b.X && right >= 45:
		b.TextX, b.Anchor = b.X+b.W+gap, "start"
	case b.X >= 45:
		b.TextX, b.Anchor = b.X-gap, "end"
	default:
		b.TextX, b.Anchor = b.X+b.W/2, "middle"
		if b.X < 20 {
			b.TextX, b.Anchor = b.X+gap, "start"
		}
	}
	return b
}

// ticks are at round times, four or so.
func (s scale) ticks() []tick {
	unit := math.Pow(10, math.Floor(math.Log10(float64(s)/2)))
	for _, m := range []float64{1, 2, 5, 10} {
		if float64(s)/(unit*m) <= 5 {
			unit *= m
			break
		}
	}
	var all []tick
	for i := 0; float64(i)*unit <= float64(s); i++ {
		t := tick{X: s.percent(float64(i) * unit), Label: tickTime(float64(i)*unit, unit), Anchor: "middle"}
		switch {
		case i == 0:
			t.Anchor = "start"
		case t.X > 94:
			t.Anchor = "end"
		}
		all = append(all, t)
	}
	return all
}

// tickTime is a time with as many digits as steps of unit need.
func tickTime(ms, unit float64) string {
	switch {
	case ms == 0:
		return "0"
	case unit < 1:
		return fmt.Sprintf("%.*f ms", int(math.Ceil(-math.Log10(unit)-1e-9)), ms)
	case unit < 100:
		return fmt.Sprintf("%.0f ms", ms)
	case unit < 1000:
		return fmt.Sprintf("%.1f s", ms/1000)
	}
	return fmt.Sprintf("%.0f s", ms/1000)
}

// The kinds of steps, from a request's point of view.
const (
	stepOwn    = "s-own"
	stepDecode = "s-decode"
	stepOthers = "s-others"
	stepOut    = "s-out"
)

func stepKind(t *capture.StepView) string {
	switch {
	case !t.Member:
		return stepOut
	case t.PrefillTokens > t.OthersPrefill:
		return stepOwn
	case t.OthersPrefill > 0:
		return stepOthers
	}
	return stepDecode
}

// step draws a step, and over its lower end the request's own part of it.
func (s scale) step(t *capture.StepView, y int) (whole, own bar) {
	whole = s.bar(t.BeginMS, t.MS, y, stripHeight, stepKind(t))
	whole.Title = fmt.Sprintf("step %d: %s; ", t.Step, fineTime(t.MS))
	if t.Member {
		whole.Title += fmt.Sprintf("%s of it for its own tokens, %d", fineTime(t.OwnMS), t.OwnTokens)
	} else {
		whole.Title += "this request was left out: " + t.LeftOut
	}
	whole.Title += fmt.Sprintf("; %d decode rows, %d prompt tokens of others", t.DecodeRows, t.OthersPrefill)
	if t.Largest != "" {
		whole.Title += "; most of it for " + shortID(t.Largest)
		whole.Href = pathOf(t.Largest)
	}
	if t.Member {
		own = whole
		own.H = part(t.OwnMS, t.MS)
		own.Y, own.Kind = y+stripHeight-own.H, "own"
	}
	return whole, own
}

// kernels draws the classes of a step one over the other, each as high as its
// part of the step.
func (s scale) kernels(t *capture.StepView, bottom int) (all []bar) {
	sum := 0.0
	for _, k := range t.Kernels {
		from, to := sum, sum+k.MS
		sum = to
		y0, y1 := part(from, t.MS), part(to, t.MS)
		if y1 > y0 {
			b := s.bar(t.BeginMS, t.MS, bottom+stripHeight-y1, y1-y0, kernelKind(k.Class))
			b.Title = fmt.Sprintf("%s: %s of step %d", k.Class, fineTime(k.MS), t.Step)
			all = append(all, b)
		}
	}
	return all
}

// part is ms of whole in pixels of a strip.
func part(ms, whole float64) int {
	return int(math.Round(stripHeight * min(1, ms/max(whole, 1e-9))))
}

// stepStrip draws a page's steps, the oldest first: their widths are equal,
// their heights go with their durations.
func stepStrip(p *StepsPage) []bar {
	const height = 96
	longest := 0.001
	for i := range p.Steps {
		longest = max(longest, p.Steps[i].MS)
	}
	var all []bar
	width := 100 / float64(max(64, len(p.Steps)))
	for i, r := range slices.Backward(p.Steps) {
		b := bar{X: float64(len(all)) * width, W: width, H: max(1, int(height*r.MS/longest)), Kind: stepDecode}
		if r.PrefillTokens > 0 {
			b.Kind = stepOthers
		}
		b.Y = height - b.H
		b.Title = fmt.Sprintf("step %d: %s; %d decode rows, %d prompt tokens", p.Steps[i].Step, fineTime(r.MS), r.DecodeRows, r.PrefillTokens)
		all = append(all, b)
	}
	return all
}
