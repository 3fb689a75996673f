package admission

import (
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// course is how the prefill of a level will proceed, beside the rows that decode
// and those that will join them: how much of it is done by when, in nanoseconds of
// engine time and from now. Both ascend.
type course struct{ done, at [courseKnots]float64 }

// courseKnots strides of steps, each pair twice as long as the one before, reach
// over 1,000 steps. Beyond them the last stride goes on.
const courseKnots = 16

// unseenRows is as how many a row counts beyond the most rows that ran together so far,
// where a promise is made: what steps cost is linear only nearby. Where one may be taken
// back it counts as one.
const unseenRows = 2.0

// course plays the steps to come. Each computes the prefill that it has room for
// beside its rows. Every typical prompt that is done is a row more. No row ends
// before the oldest one has a typical answer; from then on they end at the rate of
// rows of all ages. The rule is implicit in the number of rows, so that a long
// stride does not overshoot the number at which as many rows begin as end.
func (s *Scheduler) course(level int, unseen float64) (c course) {
	v := &s.engine
	share, typical, pace := s.share(level), v.typical, v.pace.value(s.now)
	typical.uncached, typical.answer = max(1, typical.uncached), max(1, typical.answer)
	rows, context := float64(v.rows), typical.prompt+typical.answer/2
	if v.rows > 0 {
		context = float64(v.rowsContext) / rows
	}
	done, at, stride := 0., 0., 1.
	untilEnd := typical.answer - v.oldest() // steps
	for i := range c.done {
		priced := rows + (unseen-1)*max(0, rows-float64(v.rowsMost))
		load := cost.Load{DecodeRows: int(priced + 0.5), DecodeContext: int(priced * context)}
		load.PrefillTokens = v.room.Tokens(&v.cost, load)
		done += stride * share * float64(v.cost.Prefill(load.PrefillTokens, 0, s.chunkTokens()))
		at += stride * pace * max(1, v.cost.StepNS(load))
		c.done[i], c.at[i] = done, at
		untilEnd -= stride
		ending := min(stride, max(0, -untilEnd)) // steps of this stride in which rows end
		rows = (rows + stride*share*float64(load.PrefillTokens)/typical.uncached) / (1 + ending/typical.answer)
		rows = min(rows, float64(s.places()))
		if i%2 == 1 {
			stride *= 2
		}
	}
	return c
}

// oldest is about how many tokens the oldest row has: twice the mean, as where rows
// have begun at an even rate.
func (v *ledger) oldest() float64 {
	if v.rows == 0 {
		return 0
	}
	return 2 * float64(v.rowsTokens) / float64(v.rows)
}

// when is after how long so much prefill is done.
func (c *course) when(work float64) float64 {
	done, at := 0., 0.
	for i := range c.done {
		if work <= c.done[i] || i == courseKnots-1 {
			return at + (work-done)*(c.at[i]-at)/max(1, c.done[i]-done)
		}
		done, at = c.done[i], c.at[i]
	}
	return at
}

// rate is the prefill that is done in a unit of time once as many rows begin as
// end.
func (c *course) rate() float64 {
	const last = courseKnots - 1
	return max(1e-6, (c.done[last]-c.done[last-1])/(c.at[last]-c.at[last-1]))
}

// typical is the mean request of those that came recently and were not refused, in
// tokens of a sequence. Its answer is taken to be long while few answers were seen.
type typical struct{ uncached, prompt, answer float64 }

// typicalMemory is over about how many requests the mean is taken.
const typicalMemory = 32

// observe takes in e, which starts.
func (t *typical) observe(e *Entry) {
	n := float64(max(1, e.demand.Sequences))
	follow := func(mean *float64, x float64) {
		if *mean == 0 {
			*mean = max(1, x)
		}
		*mean += (max(1, x) - *mean) / typicalMemory
	}
	follow(&t.uncached, float64(e.uncached())/n)
	follow(&t.prompt, float64(e.demand.PromptTokens)/n)
	follow(&t.answer, e.answer)
}

// pace is how long recent steps took, over what the engine's cost predicted for
// them. The engine learns what steps cost slowly, and tells noise from change only
// after a while; a forecast of the next second has to follow at once.
type pace struct{ took, predicted meter }

const (
	paceMemory = time.Second
	// paceDoubt is the engine time that was as predicted before the first step.
	paceDoubt = float64(100 * time.Millisecond)
)

func (p *pace) observe(took, predicted, now time.Duration) {
	if took > 0 && predicted > 0 {
		p.took.addOver(float64(took), now, paceMemory)
		p.predicted.addOver(float64(predicted), now, paceMemory)
	}
}

func (p *pace) value(now time.Duration) float64 {
	return (p.took.valueOver(now, paceMemory) + paceDoubt) / (p.predicted.valueOver(now, paceMemory) + paceDoubt)
}
