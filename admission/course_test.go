package admission

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// courseNaively plays step by step until so much prefill is done, with requests
// as whole numbers. The rows that decode have begun at an even rate.
func courseNaively(s *Scheduler, work float64) time.Duration {
	v := &s.engine
	var left []float64 // tokens of each row still to come
	for i := range v.rows {
		left = append(left, v.typical.answer-v.oldest()*float64(i)/float64(v.rows))
	}
	context := float64(v.rowsContext) / float64(max(1, v.rows))
	if v.rows == 0 {
		context = v.typical.prompt + v.typical.answer/2
	}
	at, done, joining := 0., 0., 0.
	for {
		load := cost.Load{DecodeRows: len(left), DecodeContext: int(float64(len(left)) * context)}
		load.PrefillTokens = v.room.Tokens(&v.cost, load)
		prefill := float64(v.cost.Prefill(load.PrefillTokens, 0, v.chunk))
		if done+prefill >= work {
			return time.Duration(at + (work-done)/prefill*v.cost.StepNS(load))
		}
		done += prefill
		at += v.cost.StepNS(load)
		kept := left[:0]
		for _, n := range left {
			if n > 1 {
				kept = append(kept, n-1)
			}
		}
		left = kept
		for joining += float64(load.PrefillTokens) / v.typical.uncached; joining >= 1 && len(left) < s.cfg.RunningSequencesMax; joining-- {
			left = append(left, v.typical.answer)
		}
	}
}

// TestCourseForeseesTheRowsThatJoin: with dear and cheap rows, from an idle and from
// a busy engine, it agrees with a play of every step. The control is a rate by the
// rows of now.
func TestCourseForeseesTheRowsThatJoin(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 5))
	off, control, n := 0., 0., 0
	for range 300 {
		s, err := NewScheduler(Config{})
		if err != nil {
			t.Fatal(err)
		}
		v := &s.engine
		v.cost = cost.Cost{Base: 1e6 * (1 + 5*rnd.Float64()), PrefillToken: 1e5 * math.Exp(rnd.NormFloat64()), DecodeRow: 1e5 * math.Exp(1.5*rnd.NormFloat64())}
		v.room = cost.Room{Budget: 50 * time.Millisecond, TokensMin: 16, TokensMax: 512}
		v.chunk = 512
		prompt := float64(20 + rnd.IntN(500))
		v.typical = typical{uncached: prompt, prompt: prompt, answer: float64(10 + rnd.IntN(200))}
		v.rows = rnd.IntN(2) * rnd.IntN(40)
		v.rowsContext, v.rowsMost = v.rows*200, 1<<20
		v.rowsTokens = int(float64(v.rows) * v.typical.answer / 2)
		c := s.course(levelInteractive, unseenRows)
		for _, want := range []float64{50e6, 200e6, 1e9} {
			real := float64(courseNaively(s, want))
			load := cost.Load{DecodeRows: v.rows, DecodeContext: v.rowsContext}
			load.PrefillTokens = v.room.Tokens(&v.cost, load)
			now := want * v.cost.StepNS(load) / float64(v.cost.Prefill(load.PrefillTokens, 0, v.chunk))
			off += math.Abs(math.Log(c.when(want) / real))
			control += math.Abs(math.Log(now / real))
			n++
		}
	}
	off, control = off/float64(n), control/float64(n)
	t.Logf("mean error %.3f, of the control %.3f", off, control)
	if off > 0.15 || control < 1.5*off {
		t.Errorf("the mean error is %.3f, that of a rate by the rows of now %.3f", off, control)
	}
}

// TestCourseOfAYoungBurst: where many rows have begun a moment ago, none ends for some
// time, and the course agrees with a play of every step. The control lets rows end as
// if they had all ages.
func TestCourseOfAYoungBurst(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 1))
	off, control, n := 0., 0., 0
	for range 200 {
		s, err := NewScheduler(Config{})
		if err != nil {
			t.Fatal(err)
		}
		v := &s.engine
		v.cost = cost.Cost{Base: 3e6, PrefillToken: 1e5 * (1 + 2*rnd.Float64()), DecodeRow: 2e5 * (1 + 3*rnd.Float64())}
		v.room = cost.Room{Budget: 50 * time.Millisecond, TokensMin: 16, TokensMax: 512}
		v.chunk = 512
		prompt := float64(40 + rnd.IntN(100))
		v.typical = typical{uncached: prompt, prompt: prompt, answer: float64(20 + rnd.IntN(30))}
		v.rows = 5 + rnd.IntN(20)
		v.rowsContext, v.rowsMost = v.rows*100, 1<<20
		v.rowsTokens = v.rows * rnd.IntN(4)
		young := s.course(levelInteractive, unseenRows)
		real := float64(courseNaively(s, 500e6))
		v.rowsTokens = int(float64(v.rows) * v.typical.answer / 2)
		even := s.course(levelInteractive, unseenRows)
		off += math.Log(real / young.when(500e6))
		control += math.Log(real / even.when(500e6))
		n++
	}
	off, control = off/float64(n), control/float64(n)
	t.Logf("the mean error is %.3f, of the control %.3f", off, control)
	if math.Abs(off) > 0.04 || control < 0.1 {
		t.Errorf("the mean error is %.3f, that of rows of all ages %.3f", off, control)
	}
}
