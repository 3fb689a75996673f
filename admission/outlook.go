package admission

import (
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// Outlook says when a newcomer would have its first token here. It is made to be
// compared with those of other replicas.
type Outlook struct {
	Cost        cost.Cost      `json:"cost"`
	Chunk       int            `json:"chunk"` // tokens of a full step
	LongPrefill time.Duration  `json:"long"`  // from which on a prefill goes by the lane of long ones
	Classes     []ClassOutlook `json:"classes"`
}

// ClassOutlook is the outlook of a class. Short and Long are the wait for the first
// token in each lane, behind all that waits and without any prefill of its own, and
// ShortRate and LongRate the engine time that prefill gets in a unit of time.
type ClassOutlook struct {
	Name      string        `json:"name"`
	Short     time.Duration `json:"short"`
	Long      time.Duration `json:"long_wait"`
	ShortRate float64       `json:"rate"`
	LongRate  float64       `json:"long_rate"`
	Open      bool          `json:"open"` // it takes requests
}

// Work is how long the uncached tokens of a prompt take once the class's newcomer has
// its turn: their engine time, at the rate that its lane gets.
func (o *Outlook) Work(class string, uncached, cached int) time.Duration {
	prefill := o.Cost.Prefill(uncached, cached, o.Chunk)
	_, rate, _ := o.lane(class, prefill)
	return time.Duration(float64(prefill) / max(rate, 0.01))
}

// Wait is after how long a newcomer of the class with so much work has its turn. It is
// false where the class takes no requests, or no engine has told what steps cost.
func (o *Outlook) Wait(class string, work time.Duration) (time.Duration, bool) {
	wait, _, open := o.lane(class, work)
	return wait, open && o.Cost.Known()
}

func (o *Outlook) lane(class string, prefill time.Duration) (wait time.Duration, rate float64, open bool) {
	for i := range o.Classes {
		switch k := &o.Classes[i]; {
		case k.Name != class:
		case prefill >= o.LongPrefill:
			return k.Long, k.LongRate, k.Open
		default:
			return k.Short, k.ShortRate, k.Open
		}
	}
	return 0, 1, false
}

// Outlook reads the state of the engine and what waits.
func (s *Scheduler) Outlook(now time.Duration) Outlook {
	s.advance(now)
	o := Outlook{Cost: s.engine.cost, Chunk: s.chunkTokens(), LongPrefill: s.cfg.LongPrefill}
	for _, k := range s.classes {
		c := ClassOutlook{Name: k.Name, Open: s.engine.up && k.mode == Open && k.waiting < k.WaitingRequestsMax}
		if s.engine.cost.Known() {
			f := s.forecast(k)
			ahead := s.levels[k.level].track.total()
			c.Short, c.Long = f.expected(&ahead, 0, false)-s.now, f.expected(&ahead, 0, true)-s.now
			c.ShortRate, c.LongRate = f.rate, f.longRate
			if k.FirstTokenGoal == 0 { // what waits for no goal is in no track
				c.Short = s.backlogWait(&Entry{class: k})
				c.Long = c.Short
			}
		}
		o.Classes = append(o.Classes, c)
	}
	return o
}

// Outlook implements Controller.
func (q *Queue) Outlook() Outlook {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.scheduler.Outlook(q.clock())
}
