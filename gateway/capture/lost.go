package capture

import (
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// losses are the times that the engine lost, by cause.
type losses [wire.LostCauseCount]time.Duration

func (l *losses) sum() (sum time.Duration) {
	for _, d := range l {
		sum += d
	}
	return sum
}

// lostIn returns the stretches of lost time that overlap the time from begin to end.
func (g *stepRing) lostIn(begin, end int64) (all []wire.LostTime) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for n := g.lostN - min(g.lostN, lossesKept); n < g.lostN; n++ {
		if l := g.losses[n%lossesKept]; l.End > begin && l.Begin < end {
			all = append(all, l)
		}
	}
	return all
}

// busiestHeard is how long after a request the name of who took the processors may
// come: it takes two looks at all processes.
const busiestHeard = int64(5 * time.Second)

// busiestIn names who took the processors from begin to end, "" for unknown.
func (g *stepRing) busiestIn(begin, end int64) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range min(g.busiestN, busiestKept) { // the newest first
		b := &g.busiest[(g.busiestN-1-i)%busiestKept]
		if b.at <= end+busiestHeard && b.name != "" {
			return b.name
		}
		if b.at < begin {
			break
		}
	}
	return ""
}

// during is the part of the stretches that lies between begin and end, if what was
// lost is spread evenly over each stretch.
func during(all []wire.LostTime, begin, end int64) (sum losses) {
	for i := range all {
		l := &all[i]
		over := min(end, l.End) - max(begin, l.Begin)
		if whole := l.End - l.Begin; over > 0 && whole > 0 {
			for c, d := range l.By {
				sum[c] += time.Duration(float64(d) * float64(over) / float64(whole))
			}
		}
	}
	return sum
}

// waitsForEngine are the phases before the engine's own in which a request waits for
// the engine.
var waitsForEngine = [phaseCount]bool{phasePrepare: true, phaseCompile: true, phaseRender: true, phaseTokenize: true, phaseQueue: true, phaseDispatch: true}

// lose takes the time that the engine lost out of the phases and parts of l.
func (l *life) lose(all []wire.LostTime) {
	if len(all) == 0 {
		return
	}
	for p, waits := range waitsForEngine {
		if waits && p > 0 {
			l.lost[p] = during(all, l.ends[p-1], l.ends[p])
		}
	}
	l.lostBefore = during(all, l.ends[phaseDispatch], l.ends[phasePrefill])
	l.lostBefore.cutFrom(&l.before, &l.handover, &l.beforeUnknown)
	l.lostAfter = during(all, l.ends[phasePrefill], l.ends[phaseDecode])
	l.lostAfter.cutFrom(&l.after, new(time.Duration), &l.afterUnknown)
}

// cutFrom shrinks times by what was lost, all alike; the waits for a reader have
// nothing to do with it. If more was lost than there is, l shrinks.
func (l *losses) cutFrom(parts *wire.Parts, others ...*time.Duration) {
	times := others
	for p := range parts {
		if part := wire.Part(p); part != wire.PartPaused && part != wire.PartParked {
			times = append(times, &parts[p])
		}
	}
	whole := time.Duration(0)
	for _, t := range times {
		whole += *t
	}
	if whole == 0 {
		*l = losses{}
		return
	}
	if sum := l.sum(); sum > whole {
		for c := range l {
			l[c] = time.Duration(float64(l[c]) * float64(whole) / float64(sum))
		}
	}
	left := l.sum()
	share := float64(left) / float64(whole)
	for _, t := range times {
		cut := min(*t, left, time.Duration(share*float64(*t)))
		*t -= cut
		left -= cut
	}
	for _, t := range times { // what rounding left
		cut := min(*t, left)
		*t -= cut
		left -= cut
	}
}
